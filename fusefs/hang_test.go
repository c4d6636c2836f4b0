package fusefs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
	bucketsync "berth/fusefs/sync"
)

// stateOf returns the letter by which the kernel tells what a process does, and
// whether it is there.
func stateOf(pid int) (letter byte, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	after := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	return strings.TrimSpace(after)[0], true
}

// A waiter is a process that waits for the store.
type waiter struct {
	*exec.Cmd
	done chan struct{}
}

func startWaiter(t *testing.T, name string, args ...string) *waiter {
	t.Helper()
	w := &waiter{exec.Command(name, args...), make(chan struct{})}
	w.Stderr = t.Output()
	w.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, w.Start())
	go func() { w.Wait(); close(w.done) }()
	t.Cleanup(func() { syscall.Kill(-w.Process.Pid, syscall.SIGKILL); <-w.done })
	return w
}

// endsWithin waits for the end of a process and returns how long it took.
func (w *waiter) endsWithin(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	begun := time.Now()
	select {
	case <-w.done:
	case <-time.After(limit):
		t.Errorf("%v did not end within %v", w.Args, limit)
	}
	return time.Since(begun)
}

// unlisted makes the kernel know a directory of the bucket whose names are not
// here, as after an outage.
func (r *rig) unlisted(store *mem.Store, dir string) {
	r.t.Helper()
	heal := store.Inject(mem.Fault{Op: mem.OpList, Prefix: dir + "/", Err: berth.ErrUnavailable})
	defer heal()
	if _, err := os.Stat(r.path(dir)); err != nil {
		r.t.Fatal(err)
	}
}

// waiting are ways to wait for the store: for names, attributes, content.
var waiting = map[string]string{
	"ls":       "ls DIR",
	"stat":     "stat DIR/there",
	"create":   "echo > DIR/new",
	"mkdir":    "mkdir DIR/new",
	"unlink":   "rm DIR/there",
	"rename":   "python3 -c 'import os; os.rename(\"DIR/there\", \"DIR/moved\")'",
	"symlink":  "ln -s x DIR/l",
	"read":     "cat known",
	"append":   "echo >> known",
	"truncate": "truncate -s 3 known",
	"piece":    "dd if=large of=/dev/null bs=4k count=1 skip=1000",
	"mapped":   "python3 -c 'import mmap; f = open(\"large\"); print(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[5000000])'",
	"appended": "echo >> large",
	"describe": "python3 -c 'import os; os.getxattr(\"vague\", \"user.x\")'",
}

// TestHungStoreAndKill kills processes that wait for a store which accepts and
// never answers, in each way there is to wait.
func TestHungStoreAndKill(t *testing.T) {
	store := new(mem.Store)
	// Each in a directory of its own, or they would be fetched ahead.
	things := map[string]string{"known": strings.Repeat("x", 300<<10), "vague": "content", "large": strings.Repeat("x", bucketsync.Large+1)}
	for name := range waiting {
		putInto(t, store, name+"/d/there", "content")
		for thing, content := range things {
			putInto(t, store, name+"/of-"+thing+"/"+thing, content)
		}
	}
	r := newRig(t, func(o *Options) { o.Store = store })
	for name, command := range waiting {
		t.Run(name, func(t *testing.T) {
			replace := []string{"DIR", r.path(name + "/d")}
			for thing := range things {
				path := r.path(name + "/of-" + thing + "/" + thing)
				replace = append(replace, thing, path)
				if strings.Contains(command, thing) && thing != "vague" {
					if _, err := os.Stat(path); err != nil {
						t.Fatal(err)
					}
				}
			}
			r.unlisted(store, name+"/d")
			heal := store.Inject(mem.Fault{Hang: true})
			defer heal()
			w := startWaiter(t, "bash", "-c", strings.NewReplacer(replace...).Replace(command))
			eventually(t, "it waits for the store", func() bool { return waitsForMount(w.Process.Pid) })
			must(t, w.Process.Signal(syscall.SIGCONT)) // the kernel tells of the first signal only
			must(t, syscall.Kill(-w.Process.Pid, syscall.SIGKILL))
			w.endsWithin(t, time.Second)
		})
	}
}

// waitsForMount says whether a process, or the child that it waits for, is in the
// middle of a request or waits for a page that one is to fill.
func waitsForMount(pid int) bool {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	for _, p := range append(strings.Fields(string(children)), fmt.Sprint(pid)) {
		at, _ := os.ReadFile("/proc/" + p + "/wchan")
		if strings.Contains(string(at), "request_wait") || strings.Contains(string(at), "folio_wait") {
			return true
		}
	}
	return false
}

// TestHungStoreAndLine has many processes wait for each other in the kernel while
// the first of them waits for a hung store: all are through when the first gives
// up, and not one deadline after the other.
func TestHungStoreAndLine(t *testing.T) {
	const deadline = 2 * time.Second
	store := new(mem.Store)
	putInto(t, store, "d/there", "content")
	r := newRig(t, func(o *Options) { o.Store = store; o.storeWait = deadline })
	r.unlisted(store, "d")
	heal := store.Inject(mem.Fault{Hang: true})
	defer heal()
	var line []*waiter
	begun := time.Now()
	for i := range 16 {
		line = append(line, startWaiter(t, "bash", "-c", fmt.Sprintf("echo > %s/new%d", r.path("d"), i)))
	}
	eventually(t, "they stand in line uninterruptibly", func() bool {
		n := 0
		for _, w := range line {
			if letter, _ := stateOf(w.Process.Pid); letter == 'D' {
				n++
			}
		}
		return n == len(line)-1
	})
	for _, w := range line {
		w.endsWithin(t, 2*deadline)
	}
	if took := time.Since(begun); took > 2*deadline {
		t.Errorf("the line took %v, want %v at most", took, 2*deadline)
	}
}

// TestStuckNotice attaches a tree while a request in another keeps the kernel
// from taking a notice.
func TestStuckNotice(t *testing.T) {
	store := new(mem.Store)
	ann, bob := berth.MemberTree("acme", "ann"), berth.MemberTree("acme", "bob")
	putInto(t, store, ann.String()+"/d/there", "content")
	r := newRig(t, func(o *Options) {
		o.Store, o.WholeBucket, o.storeWait = store, false, 3*time.Second
	})
	must(t, r.AttachTree(t.Context(), ann))
	must(t, r.AttachTree(t.Context(), bob))
	r.unlisted(store, ann.String()+"/d")
	heal := store.Inject(mem.Fault{Hang: true})
	before := store.Calls(mem.OpList)
	w := startWaiter(t, "bash", "-c", "echo > "+r.path(ann.String()+"/d/new"))
	eventually(t, "it waits for the store", func() bool { return store.Calls(mem.OpList) > before })
	var dir syscall.Stat_t
	must(t, syscall.Stat(r.path(ann.String()+"/d"), &dir))
	for i := range 3 {
		r.EntryChanged(index.Ino(dir.Ino), fmt.Sprint("there", i)) // each waits for the request of w
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := r.AttachTree(ctx, bob, "shared"); err != nil {
		t.Errorf("another tree: %v", err)
	}
	heal()
	w.endsWithin(t, 5*time.Second)
}

func putInto(t *testing.T, store object.Store, key, content string) {
	t.Helper()
	_, err := store.Put(t.Context(), key, strings.NewReader(content), int64(len(content)), object.PutOptions{})
	must(t, err)
}

// A safeBuffer can be written to and read by many.
type safeBuffer struct {
	mu sync.Mutex // protects b
	b  strings.Builder
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A panickingStore panics while it is armed.
type panickingStore struct {
	object.Store
	armed *atomic.Bool
}

func (s panickingStore) Get(ctx context.Context, key string, o object.GetOptions) (io.ReadCloser, object.Info, error) {
	if s.armed.Load() {
		panic("in the store")
	}
	return s.Store.Get(ctx, key, o)
}

// A panicking wrapper panics in the requests for some names.
type panicking struct{ fuse.RawFileSystem }

func (p panicking) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	if name == "panic" {
		panic("in mkdir")
	}
	return p.RawFileSystem.Mkdir(cancel, in, name, out)
}

// TestPanic has a request and what it waits for panic: that one call fails, the
// cause is logged with its stack, and nothing stays locked.
func TestPanic(t *testing.T) {
	var log safeBuffer
	var armed atomic.Bool
	store := new(mem.Store)
	putInto(t, store, "d/f", "x")
	r := newRig(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Store = panickingStore{store, &armed}
		o.wrap = func(raw fuse.RawFileSystem) fuse.RawFileSystem { return panicking{raw} }
	})
	if err := os.Mkdir(r.path("panic"), 0o755); !errors.Is(err, syscall.EIO) {
		t.Errorf("mkdir: got %v, want EIO", err)
	}
	armed.Store(true)
	if _, err := os.ReadFile(r.path("d/f")); !errors.Is(err, syscall.EIO) {
		t.Errorf("a read: got %v, want EIO", err)
	}
	armed.Store(false)
	for _, want := range []string{"in mkdir", "in the store", "hang_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not tell of %q:\n%s", want, log.String())
		}
	}
	// In the middle of a change, with the namespace and a file locked.
	held, err := os.Create(r.path("held"))
	must(t, err)
	defer held.Close()
	func() {
		defer func() { recover() }()
		r.withWriter(caller{}, r.inoOf("held"), false, func(*openFile, int) error { panic("with a file locked") })
	}()
	func() {
		defer func() { recover() }()
		r.update(func(*txn) error { panic("in a change") })
	}()
	var writers sync.WaitGroup
	for _, name := range []string{"held", "other", "d/f"} {
		writers.Go(func() {
			if err := os.WriteFile(r.path(name), []byte("after"), 0o644); err != nil {
				t.Errorf("%s afterwards: %v", name, err)
			}
		})
	}
	writers.Wait()
}
