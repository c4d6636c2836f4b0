package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestMount goes through the life of `berth mount` with the embedded store: what
// is written is there again after a stop and a start.
func TestMount(t *testing.T) {
	before, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	defer os.Chdir(before) // the embedded store moves it
	base := t.TempDir()
	dir, state := filepath.Join(base, "mnt"), filepath.Join(base, "state")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	serve := func(do func()) {
		t.Helper()
		m := &mountCommand{mountpoint: dir, stateFlag: state, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ready := make(chan struct{})
		ended := make(chan error, 1)
		go func() { ended <- m.run(ctx, func() { close(ready) }) }()
		select {
		case <-ready:
			do()
			cancel()
		case err := <-ended:
			t.Fatalf("cannot start: %v", err)
		case <-time.After(time.Minute):
			t.Fatal("not ready within a minute")
		}
		if err := <-ended; err != nil {
			t.Fatalf("the end: %v", err)
		}
	}
	serve(func() {
		if err := os.WriteFile(filepath.Join(dir, "hello"), []byte("world"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := flush(t.Context(), state, "", io.Discard); err != nil {
			t.Fatal(err)
		}
		report, err := readStatus(t.Context(), state)
		if err != nil || report.FileSystem.Dirty != 0 {
			t.Errorf("status: got %+v, %v, want nothing dirty", report.FileSystem, err)
		}
	})
	if _, err := readControl(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("control after the end: got %v, want none", err)
	}
	if got, err := os.ReadFile(filepath.Join(state, "store", mountBucket, "hello")); err != nil || string(got) != "world" {
		t.Errorf("the object: got %q, %v", got, err)
	}
	// Without index and cache everything comes from the bucket.
	for _, d := range []string{"index", "cache"} {
		if err := os.RemoveAll(filepath.Join(state, d)); err != nil {
			t.Fatal(err)
		}
	}
	serve(func() {
		if got, err := os.ReadFile(filepath.Join(dir, "hello")); err != nil || string(got) != "world" {
			t.Errorf("after a cold start: got %q, %v", got, err)
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("still mounted: %v, %v", left, err)
	}
}

func TestMountRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, m := range map[string]*mountCommand{
		"store without bucket": {mountpoint: dir, stateFlag: dir, storeURL: "http://127.0.0.1:1"},
		"bucket without store": {mountpoint: dir, stateFlag: dir, bucket: "b"},
		"mount on the cache":   {mountpoint: filepath.Join(dir, "cache"), stateFlag: dir},
		"mount over the state": {mountpoint: dir, stateFlag: filepath.Join(dir, "state")},
	} {
		t.Run(name, func(t *testing.T) {
			m.log = slog.New(slog.NewTextHandler(t.Output(), nil))
			before, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			defer os.Chdir(before)
			if err := m.run(t.Context(), func() {}); err == nil {
				t.Error("it was mounted")
			}
		})
	}
}
