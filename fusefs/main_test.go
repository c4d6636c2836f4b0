package fusefs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

// serveEnv makes the test binary a server that a test can kill: see kill_test.go.
// bootEnv tells it which run of the machine it is in.
const (
	serveEnv = "BERTH_TEST_SERVE"
	bootEnv  = "BERTH_TEST_BOOT"
)

func TestMain(m *testing.M) {
	if dir, url := os.Getenv(serveEnv), os.Getenv(askedEnv); url != "" {
		os.Exit(serveAsked(dir, url))
	} else if dir != "" {
		os.Exit(serveForTest(dir))
	}
	if args := os.Getenv(fsxEnv); args != "" {
		os.Exit(fsxForTest(args))
	}
	// Only mounts below this directory are this run's.
	base, err := os.MkdirTemp("", "fusefs-test-")
	if err == nil {
		err = os.Setenv("TMPDIR", base)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	for _, path := range mounted(base) {
		fmt.Fprintln(os.Stderr, "a test left a mount:", path)
		unix.Unmount(path, unix.MNT_DETACH)
		code = 1
	}
	os.RemoveAll(base)
	os.Exit(code)
}

// mounted returns the mount points of berth's type below a directory.
func mounted(base string) []string {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer file.Close()
	var out []string
	for s := bufio.NewScanner(file); s.Scan(); {
		fields := strings.Fields(s.Text())
		if strings.Contains(s.Text(), " - fuse.berth ") && len(fields) > 4 && within(fields[4], base) {
			out = append(out, fields[4])
		}
	}
	return out
}

// A rig is a mounted FS of a test.
type rig struct {
	*FS
	t     *testing.T
	dir   string // the mount point
	state string
	store object.Store
	opts  Options
}

// newRig mounts a whole bucket in memory, changed by the options.
func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	base := t.TempDir()
	r := &rig{t: t, dir: filepath.Join(base, "mnt"), state: filepath.Join(base, "state")}
	for _, d := range []string{r.dir, r.state} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.opts = Options{StateDir: r.state, Mountpoint: r.dir, WholeBucket: true, Logger: testLogger(t)}
	for _, c := range change {
		c(&r.opts)
	}
	if r.opts.Store == nil {
		r.opts.Store = new(mem.Store)
	}
	r.store = r.opts.Store
	r.open()
	t.Cleanup(func() { r.close() })
	return r
}

func (r *rig) open() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f, err := Open(ctx, r.opts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.FS = f
}

// close closes the FS, uploading everything; it can be repeated.
func (r *rig) close() {
	r.t.Helper()
	if r.FS == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.FS.Close(ctx); err != nil {
		r.t.Errorf("close: %v", err)
	}
	r.FS = nil
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

// flush waits until the bucket has everything.
func (r *rig) flush() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := r.Flush(ctx, ""); err != nil {
		r.t.Fatalf("flush: %v (%+v)", err, r.Status())
	}
}

// object returns the content of an object, or an error.
func (r *rig) object(key string) (string, error) {
	body, _, err := r.store.Get(context.Background(), key, object.GetOptions{})
	if err != nil {
		return "", err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	return string(data), err
}

// keys returns the keys of the bucket without berth's own.
func (r *rig) keys() []string {
	r.t.Helper()
	var out []string
	for after := ""; ; {
		page, err := r.store.List(context.Background(), object.ListOptions{After: after})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, o := range page.Objects {
			if !strings.HasPrefix(o.Key, ownPrefix+"/") {
				out = append(out, o.Key)
			}
		}
		if page.Next == "" {
			return out
		}
		after = page.Next
	}
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		if ok() {
			tick.Stop()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func testLogger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put writes an object as another tool would.
func (r *rig) put(key, content string) error {
	_, err := r.store.Put(context.Background(), key, strings.NewReader(content), int64(len(content)), object.PutOptions{})
	return err
}
