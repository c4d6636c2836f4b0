package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth"
	"berth/mounts"
)

// TestVersionsCommands lists, reads and restores earlier contents of a mount.
func TestVersionsCommands(t *testing.T) {
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
	m := &mountCommand{mountpoint: dir, stateFlag: state, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- m.run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("cannot start: %v", err)
	}
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
	}()
	file := filepath.Join(dir, "d", "f")
	step := func(do func() error) {
		t.Helper()
		if err := errors.Join(do(), flush(ctx, state, "", io.Discard)); err != nil {
			t.Fatal(err)
		}
	}
	checkpoint := func() error {
		ctl, err := readControl(state)
		if err != nil {
			return err
		}
		client := mounts.NewClient(ctl.Mountd.Socket, ctl.Mountd.Token)
		defer client.Close()
		_, err = client.Checkpoint(ctx, []berth.Tree{{}})
		return err
	}
	step(func() error {
		return errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("first"), 0o640))
	})
	step(checkpoint)
	step(func() error { return os.WriteFile(file, []byte("second"), 0o640) })
	step(checkpoint)
	step(func() error { return os.RemoveAll(filepath.Dir(file)) })

	berthRun := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(ctx, append(args, "--state", state), &out, io.Discard)
		return out.String(), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := berthRun(args...)
		if err != nil {
			t.Fatalf("berth %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	lines := strings.Split(strings.TrimSpace(must("versions", "d/f", "--json")), "\n")
	var versions []berth.Version
	for _, line := range lines {
		var v berth.Version
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		versions = append(versions, v)
	}
	if len(versions) != 2 || versions[0].End != berth.EndDeleted || versions[1].End != berth.EndOverwritten {
		t.Fatalf("versions: %+v", versions)
	}
	if out := must("versions", "d/f"); !strings.Contains(out, versions[0].ID) || strings.Count(out, "\n") != 2 {
		t.Errorf("versions: %q", out)
	}
	if out := must("versions", "/d/f", "--read", versions[1].ID); out != "first" {
		t.Errorf("the first version: %q", out)
	}
	for _, where := range [][]string{{}, {"d"}} {
		if out := must(append([]string{"versions", "--deleted"}, where...)...); strings.Count(out, "\n") != 1 || !strings.Contains(out, "f\n") {
			t.Errorf("deleted files of %q: %q", where, out)
		}
	}
	must("restore", "d/f")
	if got, err := os.ReadFile(file); err != nil || string(got) != "second" {
		t.Errorf("restored: %q, %v", got, err)
	}
	must("restore", "d/f", "--version", versions[1].ID)
	if info, err := os.Stat(file); err != nil || info.Size() != 5 || info.Mode().Perm() != 0o640 {
		t.Errorf("restored: %v, %v", info, err)
	}
	if out := must("versions", "--deleted"); out != "" {
		t.Errorf("still deleted: %q", out)
	}
	for _, tc := range []struct {
		args []string
		want error
	}{
		{[]string{"restore", "none"}, fs.ErrNotExist},
		{[]string{"restore", "d/f", "--version", "x"}, fs.ErrInvalid},
		{[]string{"versions", "main/members/me", "f"}, fs.ErrInvalid}, // here are no trees
	} {
		if _, err := berthRun(tc.args...); !errors.Is(err, tc.want) {
			t.Errorf("berth %q: got %v, want %v", tc.args, err, tc.want)
		}
	}
	for _, args := range [][]string{{"versions"}, {"restore"}, {"versions", "no tree", "f"}, {"versions", "/"}} {
		_, err := berthRun(args...)
		if usage := new(usageError); !errors.As(err, &usage) {
			t.Errorf("berth %q: got %v, want an error of usage", args, err)
		}
	}
}
