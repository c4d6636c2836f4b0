package fusefs

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"berth/fusefs/cache"
)

// An opCount counts requests of the kernel.
type opCount struct {
	fuse.RawFileSystem
	reads, writes, creates atomic.Int32
	opened                 sync.Map // inode numbers of the files that were opened
}

func (c *opCount) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	c.opened.Store(in.NodeId, true)
	return c.RawFileSystem.Open(cancel, in, out)
}

func (c *opCount) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	c.reads.Add(1)
	return c.RawFileSystem.Read(cancel, in, buf)
}

func (c *opCount) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	c.writes.Add(1)
	return c.RawFileSystem.Writev(cancel, in, data)
}

func (c *opCount) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	c.creates.Add(1)
	return c.RawFileSystem.Create(cancel, in, name, out)
}

// count is an option that counts.
func (c *opCount) count(o *Options) {
	o.wrap = func(raw fuse.RawFileSystem) fuse.RawFileSystem {
		c.RawFileSystem = raw
		return c
	}
}

func TestPassthroughSendsNoReadsOrWrites(t *testing.T) {
	var ops opCount
	r := newRig(t, ops.count)
	if !r.Passthrough() {
		t.Fatal("no passthrough on this machine: the kernel must be 6.9 or newer and the cache not on overlayfs")
	}
	data := make([]byte, 4<<20)
	rand.Read(data)
	must(t, os.WriteFile(r.path("f"), data, 0o644))
	got, err := os.ReadFile(r.path("f"))
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("read back: %d bytes, %v", len(got), err)
	}
	cmd := exec.Command("sh", "-c", "echo more >> f && cp f g && cmp f g && tail -c 5 g")
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "more\n" {
		t.Fatalf("got %q, %v", out, err)
	}
	if n, w := ops.reads.Load(), ops.writes.Load(); n+w > 0 {
		t.Errorf("got %d READ and %d WRITE, want none", n, w)
	}
	if ops.creates.Load() == 0 {
		t.Error("nothing was counted at all")
	}
}

func TestThroughDaemonServesReadsAndWrites(t *testing.T) {
	var ops opCount
	r := newRig(t, ops.count, func(o *Options) { o.NoPassthrough = true })
	must(t, os.WriteFile(r.path("f"), []byte("hello"), 0o644))
	if got, err := os.ReadFile(r.path("f")); err != nil || string(got) != "hello" {
		t.Fatalf("got %q, %v", got, err)
	}
	if ops.writes.Load() == 0 {
		t.Error("no WRITE was counted")
	}
}

// Stores through a mapping go on after the close, unseen by anybody.
func TestStoreAfterCloseIsUploaded(t *testing.T) {
	for _, through := range []bool{true, false} {
		t.Run(fmt.Sprint("passthrough ", through), func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.NoPassthrough = !through })
			must(t, os.WriteFile(r.path("m"), make([]byte, 8192), 0o644))
			r.flush()
			store := mapInChild(t, r.path("m"))
			store("0 while mapped")
			r.flush()
			if got, err := r.object("m"); through && (err != nil || got[:12] != "while mapped") {
				t.Errorf("flushed while mapped: got %q, %v", got[:min(len(got), 12)], err)
			}
			store("4096 after the flush")
			store("end")
			eventually(t, "the last store is in the bucket", func() bool {
				got, err := r.object("m")
				return err == nil && len(got) == 8192 && got[4096:4111] == "after the flush"
			})
			if got, _ := r.object("m"); got[:12] != "while mapped" {
				t.Errorf("got %q", got[:12])
			}
			eventually(t, "the file settles", func() bool { return r.Status().Open == 0 })
		})
	}
}

// mapInChild has another process map a file and close it, and returns how to have
// it store "OFFSET TEXT" or "end". This process is the server: a page fault of
// its own could wait for itself.
func mapInChild(t *testing.T, path string) (store func(line string)) {
	t.Helper()
	cmd := exec.Command("python3", "-c", `import mmap, sys
f = open(sys.argv[1], "r+b"); m = mmap.mmap(f.fileno(), 0); f.close()
for line in sys.stdin:
    if line == "end\n": m.close()
    else:
        at, text = line.rstrip("\n").split(" ", 1); m[int(at):int(at) + len(text)] = text.encode()
    print("done", flush=True)`, path)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	must(t, errors.Join(err1, err2, cmd.Start()))
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	answers := bufio.NewReader(out)
	return func(line string) {
		t.Helper()
		fmt.Fprintln(in, line)
		if got, err := answers.ReadString('\n'); got != "done\n" {
			t.Fatalf("%s: got %q, %v", line, got, err)
		}
	}
}

func TestLongOpenFileIsSnapshotted(t *testing.T) {
	r := newRig(t)
	f, err := os.Create(r.path("log"))
	must(t, err)
	defer f.Close()
	f.WriteString("first line\n")
	eventually(t, "a snapshot is in the bucket", func() bool {
		got, err := r.object("log")
		return err == nil && got == "first line\n"
	})
	f.WriteString("second line\n")
	must(t, f.Close())
	r.flush()
	if got, err := r.object("log"); err != nil || got != "first line\nsecond line\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

// What was opened and not changed is not uploaded again.
func TestOpenWithoutChange(t *testing.T) {
	r := newRig(t)
	must(t, os.WriteFile(r.path("f"), []byte("x"), 0o644))
	r.flush()
	old := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(r.path("f"), old, old))
	r.flush()
	before, err := r.store.Head(t.Context(), "f")
	must(t, err)
	f, err := os.OpenFile(r.path("f"), os.O_RDWR, 0)
	must(t, err)
	must(t, f.Close())
	eventually(t, "the file settles", func() bool { return r.Status().Open == 0 })
	r.flush()
	after, err := r.store.Head(t.Context(), "f")
	must(t, err)
	if before.Metadata["berth-hlc"] != after.Metadata["berth-hlc"] {
		t.Error("the file was uploaded again")
	}
	if st, err := os.Stat(r.path("f")); err != nil || !st.ModTime().Equal(old) {
		t.Errorf("mtime: got %v, %v, want %v", st.ModTime(), err, old)
	}
}

func TestTimes(t *testing.T) {
	r := newRig(t)
	want := time.Unix(1234567890, 123456789)
	f, err := os.Create(r.path("f"))
	must(t, err)
	f.WriteString("x")
	must(t, os.Chtimes(r.path("f"), want, want)) // while it is open
	check := func(when string) {
		t.Helper()
		if st, err := os.Stat(r.path("f")); err != nil || !st.ModTime().Equal(want) {
			t.Errorf("%s: got %v, %v, want %v", when, st.ModTime(), err, want)
		}
	}
	check("while open")
	must(t, f.Close())
	check("after close")
	eventually(t, "the file settles", func() bool { return r.Status().Open == 0 })
	check("after it settled")
	r.close()
	r.open()
	check("after a restart")
}

func TestOpenUnlinked(t *testing.T) {
	r := newRig(t)
	f, err := os.Create(r.path("f"))
	must(t, err)
	defer f.Close()
	must(t, os.Remove(r.path("f")))
	_, err = f.WriteString("still there")
	must(t, err)
	buf := make([]byte, 11)
	if _, err := f.ReadAt(buf, 0); err != nil || string(buf) != "still there" {
		t.Errorf("got %q, %v", buf, err)
	}
	must(t, f.Truncate(5))
	must(t, f.Chmod(0o600))
	if st, err := f.Stat(); err != nil || st.Size() != 5 || st.Mode() != 0o600 {
		t.Errorf("stat: got %v, %v", st, err)
	}
	must(t, f.Close())
	r.flush()
	if got := r.keys(); len(got) > 0 {
		t.Errorf("the bucket has %v", got)
	}
	eventually(t, "its content is gone", func() bool { return len(r.contentFiles()) == 0 })
}

// contentFiles returns the numbers in the cache.
func (r *rig) contentFiles() []string {
	r.t.Helper()
	var out []string
	dirs, err := os.ReadDir(r.state + "/cache")
	must(r.t, err)
	for _, d := range dirs {
		if len(d.Name()) != 2 {
			continue
		}
		files, err := os.ReadDir(r.state + "/cache/" + d.Name())
		must(r.t, err)
		for _, f := range files {
			out = append(out, f.Name())
		}
	}
	return out
}

func TestSparseAndRanges(t *testing.T) {
	r := newRig(t)
	f, err := os.Create(r.path("f"))
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(100<<30))
	_, err = f.WriteAt([]byte("far"), 50<<30)
	must(t, err)
	if off, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA); err != nil || off > 50<<30 || off < 49<<30 {
		t.Errorf("SEEK_DATA: got %d, %v", off, err)
	}
	must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 50<<30, 4096))
	buf := make([]byte, 3)
	if _, err := f.ReadAt(buf, 50<<30); err != nil || string(buf) != "\x00\x00\x00" {
		t.Errorf("after a hole was punched: got %q, %v", buf, err)
	}
	must(t, f.Truncate(0))
	_, err = f.WriteAt([]byte("0123456789"), 0)
	must(t, err)
	g, err := os.Create(r.path("g"))
	must(t, err)
	defer g.Close()
	from, to := int64(2), int64(0)
	n, err := unix.CopyFileRange(int(f.Fd()), &from, int(g.Fd()), &to, 5, 0)
	if err != nil || n != 5 {
		t.Fatalf("copy_file_range: got %d, %v", n, err)
	}
	if got, err := os.ReadFile(r.path("g")); err != nil || string(got) != "23456" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestFsync(t *testing.T) {
	r := newRig(t)
	f, err := os.Create(r.path("f"))
	must(t, err)
	defer f.Close()
	f.WriteString("x")
	must(t, f.Sync())
	d, err := os.Open(r.dir)
	must(t, err)
	defer d.Close()
	must(t, d.Sync())
}

// TestUnlinkedBeforeSettled has a file lose its name between its last write and
// the commit of what was written: who has it open sees its size.
func TestUnlinkedBeforeSettled(t *testing.T) {
	r := newRig(t)
	f, err := os.Create(r.path("f"))
	must(t, err)
	defer f.Close()
	ino := r.inoOf("f")
	must(t, os.Remove(r.path("f")))
	must(t, r.commitContent(ino, cache.Stat{Size: 7}, nil))
	if n, err := r.inode(ino); err != nil || n.Size != 7 {
		t.Errorf("the size is %d, %v; want 7", n.Size, err)
	}
}
