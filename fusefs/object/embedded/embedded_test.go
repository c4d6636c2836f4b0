package embedded_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"berth/fusefs/object"
	"berth/fusefs/object/embedded"
	"berth/fusefs/object/embedded/embeddedtest"
	"berth/fusefs/object/s3"
	"berth/fusefs/object/storetest"
)

func TestContract(t *testing.T) {
	limits := storetest.Limits{NoOverlap: true, Segment: 255, PartSize: 5 << 20}
	storetest.All(t, limits, func(t *testing.T) object.Store { return embeddedtest.Open(t) })
}

func open(t testing.TB, o s3.Options) *s3.Store {
	t.Helper()
	s, err := s3.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestPlainFiles proves that the objects are files that other tools can read,
// and that nobody else on the machine can.
func TestPlainFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "store")
	s := open(t, embeddedtest.Start(t, dir))
	if _, err := s.Put(t.Context(), "ws/members/ann/a.txt", strings.NewReader("hello"), 5, object.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, embeddedtest.Bucket, "ws/members/ann/a.txt")
	if data, err := os.ReadFile(file); err != nil || string(data) != "hello" {
		t.Errorf("file: got %q, %v", data, err)
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, embeddedtest.Bucket): 0o700, filepath.Dir(file): 0o700, file: 0o600} {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: got mode %v, %v; want %v", path, fi.Mode().Perm(), err, want)
		}
	}
}

// TestReservedNames proves that the server's own files cannot be reached by keys.
func TestReservedNames(t *testing.T) {
	s := embeddedtest.Open(t)
	ctx := t.Context()
	if _, err := s.Put(ctx, "mine", strings.NewReader("x"), 1, object.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{".sgwtmp", ".sgwtmp/x", ".sgwtmp/multipart/x", "../x", "a/../../x", "a/./b", "./x", "a//b", "/x", "a/../b", "/", "//", "mine//", "mine/.", "x/../.sgwtmp/y"} {
		for _, parts := range []bool{false, true} {
			if _, err := s.Put(ctx, key, strings.NewReader("x"), 1, object.PutOptions{InParts: parts}); err == nil {
				t.Errorf("put of %q: got no error", key)
			} else if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("put of %q: got %v, want fs.ErrInvalid", key, err)
			}
		}
		if _, err := s.Copy(ctx, key, "mine", object.CopyOptions{}); err == nil {
			t.Errorf("copy to %q: got no error", key)
		}
		if _, err := s.Copy(ctx, "stolen", key, object.CopyOptions{}); err == nil {
			t.Errorf("copy of %q: got no error", key)
		}
		if info, err := s.Head(ctx, key); err == nil {
			t.Errorf("head of %q: got %+v", key, info)
		}
		s.Delete(ctx, key, "") // whatever it says, the next line holds
	}
	page, err := s.List(ctx, object.ListOptions{})
	if err != nil || len(page.Objects) != 1 {
		t.Errorf("list: got %+v, %v", page, err)
	}
}

// TestClearsWhatADeadProcessLeft proves that temporary files and old unfinished
// uploads go at the next start, and that nothing else does.
func TestClearsWhatADeadProcessLeft(t *testing.T) {
	dir := t.TempDir()
	tmp := filepath.Join(dir, embeddedtest.Bucket, ".sgwtmp")
	uploads := filepath.Join(tmp, "multipart", "digest")
	for _, d := range []string{"old", "new"} {
		if err := os.MkdirAll(filepath.Join(uploads, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{filepath.Join(tmp, "left"), filepath.Join(uploads, "old", "1"), filepath.Join(uploads, "new", "1")} {
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(filepath.Join(uploads, "old"), before, before); err != nil {
		t.Fatal(err)
	}
	embeddedtest.Start(t, dir)
	for path, want := range map[string]bool{filepath.Join(tmp, "left"): false, filepath.Join(uploads, "old"): false, filepath.Join(uploads, "new", "1"): true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: got %v, want it to exist: %v", path, err, want)
		}
	}
}

// TestLeavesNothingRunning proves that a store that ended has ended.
func TestLeavesNothingRunning(t *testing.T) {
	t.Chdir("/")
	goroutines := func() string {
		buf := make([]byte, 1<<20)
		return string(buf[:runtime.Stack(buf, true)])
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := embedded.Run(ctx, embedded.Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", AccessKey: "a", SecretKey: "s", Bucket: "bucket",
		Logger: slog.New(slog.DiscardHandler),
		Ready: func(url string) {
			defer cancel()
			s := open(t, s3.Options{URL: url, Bucket: "bucket", AccessKey: "a", SecretKey: "s"})
			r, _, err := s.Get(t.Context(), "none", object.GetOptions{})
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("get: got %v, %v", r, err)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); strings.Contains(goroutines(), "versitygw"); {
		if time.Now().After(deadline) {
			t.Fatalf("still running:\n%s", goroutines())
		}
		runtime.Gosched()
	}
}

// TestReadWhileReplaced proves that an open body stays what it was.
func TestReadWhileReplaced(t *testing.T) {
	s := embeddedtest.Open(t)
	old := strings.Repeat("old", 1<<20)
	if _, err := s.Put(t.Context(), "k", strings.NewReader(old), int64(len(old)), object.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	r, _, err := s.Get(t.Context(), "k", object.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := s.Put(t.Context(), "k", strings.NewReader("new"), 3, object.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "k", ""); err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(r); err != nil || string(data) != old {
		t.Errorf("got %d bytes, %v; want the %d of the generation that was opened", len(data), err, len(old))
	}
}

// TestEmptyDirectories proves that directories which a process left that died on
// its way to a write do not block the key that has their name.
func TestEmptyDirectories(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, embeddedtest.Bucket, "a/b/c"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, embeddedtest.Bucket, "p/b/c"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, embeddedtest.Start(t, dir))
	page, err := s.List(t.Context(), object.ListOptions{})
	if err != nil || len(page.Objects) != 0 {
		t.Errorf("list: got %+v, %v", page, err)
	}
	for _, o := range []struct {
		key   string
		parts bool
	}{{"a", false}, {"p", true}} {
		if _, err := s.Put(t.Context(), o.key, strings.NewReader("x"), 1, object.PutOptions{IfNoneMatch: true, InParts: o.parts}); err != nil {
			t.Error(err)
		}
	}
	// A write that fails leaves no directories either.
	if _, err := s.Put(t.Context(), "n/e/w", strings.NewReader("x"), 1, object.PutOptions{IfMatch: "0123456789abcdef0123456789abcdef"}); !errors.Is(err, object.ErrPrecondition) {
		t.Errorf("put: got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, embeddedtest.Bucket, "n")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory of the failed put: %v", err)
	}
}

// TestStopsAtOnce proves that a store that is told to stop while it starts stops.
func TestStopsAtOnce(t *testing.T) {
	t.Chdir("/")
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := embedded.Run(ctx, embedded.Options{
			Dir: t.TempDir(), Listen: "127.0.0.1:0", AccessKey: "a", SecretKey: "s", Bucket: "bucket",
			Logger: slog.New(slog.DiscardHandler), Ready: func(string) {},
		})
		if err != nil {
			t.Error(err)
		}
	}
}
