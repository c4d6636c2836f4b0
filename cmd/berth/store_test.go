package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth"
	"berth/fusefs/object"
	"berth/fusefs/object/s3"
)

// storeChildEnv makes this test binary be `berth store`.
const storeChildEnv = "BERTH_TEST_STORE_CHILD"

// TestStoreChild is the child of the tests below; by itself it does nothing.
func TestStoreChild(t *testing.T) {
	if os.Getenv(storeChildEnv) == "" {
		return
	}
	cmd := newStoreCommand()
	cmd.SetArgs(nil)
	cmd.SilenceUsage = true
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A storeChild is a store in a process of its own.
type storeChild struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	url    string
	waited chan error
}

// startStore starts a store with the configuration. Without a ready line url is empty.
func startStore(t *testing.T, conf any) *storeChild {
	t.Helper()
	doc, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	confR, confW, err1 := os.Pipe()
	readyR, readyW, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	c := &storeChild{waited: make(chan error, 1)}
	c.cmd = exec.Command(os.Args[0], "-test.run=^TestStoreChild$")
	c.cmd.Env = append(os.Environ(), storeChildEnv+"=1")
	c.cmd.ExtraFiles = []*os.File{confR, readyW}
	c.cmd.Stderr = &c.stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.cmd.Process.Kill() }) // no error counts: most are over by then
	go func() { c.waited <- c.cmd.Wait() }()
	confR.Close()
	readyW.Close()
	_, err = confW.Write(doc)
	confW.Close()
	line, readErr := io.ReadAll(readyR)
	readyR.Close()
	if err := errors.Join(err, readErr); err != nil {
		t.Fatal(err)
	}
	if len(line) > 0 {
		var ready storeReady
		if err := json.Unmarshal(line, &ready); err != nil || !ready.Ready || bytes.Count(line, []byte("\n")) != 1 {
			t.Fatalf("ready line %q: %v", line, err)
		}
		c.url = ready.URL
	}
	return c
}

// stop sends the signal and returns how the process ended.
func (c *storeChild) stop(t *testing.T, sig os.Signal) error {
	t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	return c.wait(t)
}

func (c *storeChild) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-c.waited:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("the store does not end")
		return nil
	}
}

func testStoreConfig(t *testing.T) storeConfig {
	return storeConfig{Dir: t.TempDir() + "/store", Listen: "127.0.0.1:0", AccessKey: "berth", SecretKey: "a-secret-of-tests", Bucket: "berth"}
}

func openStore(t *testing.T, url string, conf storeConfig) *s3.Store {
	t.Helper()
	s, err := s3.New(s3.Options{URL: url, Bucket: conf.Bucket, AccessKey: conf.AccessKey, SecretKey: conf.SecretKey, PartSize: 5 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStoreCommand(t *testing.T) {
	conf := testStoreConfig(t)
	c := startStore(t, conf)
	if c.url == "" {
		t.Fatalf("not ready: %v\n%s", c.wait(t), &c.stderr)
	}
	s := openStore(t, c.url, conf)
	if _, err := s.Put(t.Context(), "a/b", strings.NewReader("kept"), 4, object.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	wrong := openStore(t, c.url, storeConfig{AccessKey: "berth", SecretKey: "wrong-secret", Bucket: "berth"})
	if _, err := wrong.List(t.Context(), object.ListOptions{}); err == nil || !strings.Contains(err.Error(), "does not know these credentials") {
		t.Errorf("wrong secret: got %v", err)
	}
	// SIGINT is for the parent alone.
	if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(t.Context(), "a/b"); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
	if err := c.stop(t, syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: got %v, want exit code 0\n%s", err, &c.stderr)
	}
	if log := c.stderr.String(); !strings.Contains(log, "Refused store request") || strings.Contains(log, conf.SecretKey) {
		t.Errorf("log: got %q", log)
	}

	// The same port again, and what was stored.
	conf.Listen = strings.TrimPrefix(c.url, "http://")
	again := startStore(t, conf)
	if again.url != c.url {
		t.Errorf("again at %q, want %q\n%s", again.url, c.url, &again.stderr)
	}
	if _, err := openStore(t, again.url, conf).Head(t.Context(), "a/b"); err != nil {
		t.Error(err)
	}
	// A port that is taken becomes another one.
	other := conf
	other.Dir = t.TempDir()
	second := startStore(t, other)
	if second.url == "" || second.url == c.url {
		t.Errorf("beside it at %q\n%s", second.url, &second.stderr)
	}
	for _, c := range []*storeChild{again, second} {
		if err := c.stop(t, syscall.SIGTERM); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
	}
}

func TestStoreRefuses(t *testing.T) {
	for name, change := range map[string]func(*storeConfig){
		"every interface":   func(c *storeConfig) { c.Listen = "0.0.0.0:0" },
		"no address":        func(c *storeConfig) { c.Listen = ":0" },
		"another interface": func(c *storeConfig) { c.Listen = "192.0.2.1:0" },
		"a name":            func(c *storeConfig) { c.Listen = "localhost:0" },
		"no credentials":    func(c *storeConfig) { c.SecretKey = "" },
		"no bucket":         func(c *storeConfig) { c.Bucket = "" },
		"bucket elsewhere":  func(c *storeConfig) { c.Bucket = "../up" },
		"no directory":      func(c *storeConfig) { c.Dir = "" },
	} {
		t.Run(name, func(t *testing.T) {
			conf := testStoreConfig(t)
			change(&conf)
			c := startStore(t, conf)
			if err := c.wait(t); err == nil || c.url != "" || !strings.Contains(c.stderr.String(), "cannot start store") {
				t.Errorf("got %v at %q, saying %q", err, c.url, &c.stderr)
			}
		})
	}
	c := startStore(t, map[string]string{"dirr": "/x"})
	if err := c.wait(t); err == nil || !strings.Contains(c.stderr.String(), "dirr") {
		t.Errorf("unknown field: got %v, saying %q", err, &c.stderr)
	}
}

// TestStoreKilled kills the store while it is written to, several times over one
// directory: what was answered is there, what is there is whole, and nothing
// else is.
func TestStoreKilled(t *testing.T) {
	conf := testStoreConfig(t)
	content := func(key string) string { return strings.Repeat(key+"\n", 20000) }
	answered := map[string]bool{} // keys whose PUT was answered
	asked := map[string]bool{}
	for round := range 3 {
		c := startStore(t, conf)
		if c.url == "" {
			t.Fatalf("not ready: %v\n%s", c.wait(t), &c.stderr)
		}
		s := openStore(t, c.url, conf)
		var mu sync.Mutex
		var wg sync.WaitGroup
		enough := make(chan struct{})
		for w := range 8 {
			wg.Go(func() {
				for i := 0; ; i++ {
					key := fmt.Sprintf("dir%d/%d-%d-%d", i%3, round, w, i)
					body := content(key)
					mu.Lock()
					asked[key] = true
					mu.Unlock()
					_, err := s.Put(t.Context(), key, strings.NewReader(body), int64(len(body)),
						object.PutOptions{Metadata: map[string]string{"key": key}, InParts: i%4 == 0})
					if err != nil {
						if !errors.Is(err, berth.ErrUnavailable) {
							t.Errorf("put beside the kill: %v", err)
						}
						return
					}
					mu.Lock()
					answered[key] = true
					if len(answered) == 40*(round+1) {
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
		<-enough
		if err := c.stop(t, syscall.SIGKILL); err == nil {
			t.Error("the killed store ended well")
		}
		wg.Wait()
	}
	c := startStore(t, conf)
	s := openStore(t, c.url, conf)
	seen := map[string]bool{}
	for info, err := range object.All(t.Context(), s, "") {
		if err != nil {
			t.Fatal(err)
		}
		seen[info.Key] = true
		if !asked[info.Key] {
			t.Errorf("%q is there and was never put", info.Key)
			continue
		}
		r, got, err := s.Get(t.Context(), info.Key, object.GetOptions{IfMatch: info.ETag})
		if err != nil {
			t.Error(err)
			continue
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(data) != content(info.Key) || got.Metadata["key"] != info.Key {
			t.Errorf("%q: %d bytes, metadata %q, %v", info.Key, len(data), got.Metadata, err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(answered)) {
		if !seen[key] {
			t.Errorf("%q was answered and is not there", key)
		}
	}
	if err := c.stop(t, syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, &c.stderr)
	}
}
