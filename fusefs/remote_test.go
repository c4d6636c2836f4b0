package fusefs

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth"
	"berth/fusefs/object/mem"
)

// Others change the bucket while the kernel has much of it cached.
func TestRemoteChanges(t *testing.T) {
	store := new(mem.Store)
	r := newRig(t, func(o *Options) {
		o.Store = store
		o.Revalidate = 50 * time.Millisecond
	})
	must(t, r.put("d/f", "one"))
	must(t, r.put("d/gone", "x"))
	read := func(name string) string {
		data, err := os.ReadFile(r.path(name))
		if err != nil {
			return err.Error()
		}
		return string(data)
	}
	if got := read("d/f"); got != "one" {
		t.Fatalf("got %q, want one", got)
	}
	if _, err := os.Stat(r.path("d/new")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, want fs.ErrNotExist", err)
	}
	held, err := os.Open(r.path("d/f"))
	must(t, err)
	defer held.Close()
	must(t, r.put("d/f", "longer than before"))
	must(t, r.put("d/new", "new"))
	must(t, r.store.Delete(t.Context(), "d/gone", ""))
	eventually(t, "the new content is here", func() bool { return read("d/f") == "longer than before" })
	eventually(t, "the new file is here", func() bool { return read("d/new") == "new" })
	eventually(t, "the removed file is gone", func() bool {
		_, err := os.Stat(r.path("d/gone"))
		return errors.Is(err, fs.ErrNotExist)
	})
	buf := make([]byte, 3)
	if _, err := held.ReadAt(buf, 0); err != nil || string(buf) != "one" {
		t.Errorf("who had it open reads %q, %v, want one", buf, err)
	}
	// A name that is being written to here is not replaced under the writer.
	f, err := os.OpenFile(r.path("d/new"), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString("mine")
	must(t, err)
	must(t, f.Close())
	r.flush()
	if got, err := r.object("d/new"); err != nil || got != "mine" {
		t.Errorf("got %q, %v, want mine", got, err)
	}
}

// A cold start finds everything in the bucket, with attributes.
func TestColdStart(t *testing.T) {
	r := newRig(t)
	makeThing(t, r.dir, "a", "full")
	makeThing(t, r.dir, "l", "link")
	must(t, os.Chmod(r.path("a/one"), 0o751))
	must(t, os.Chmod(r.path("a/sub"), 0o700))
	when := time.Unix(1e9, 123456789)
	must(t, os.Chtimes(r.path("a/one"), when, when))
	before := treeOf(t, r.dir)
	r.close()
	must(t, os.RemoveAll(r.state))
	must(t, os.Mkdir(r.state, 0o755))
	r.open()
	if got := treeOf(t, r.dir); strings.Join(got, "\n") != strings.Join(before, "\n") {
		t.Errorf("got %q, want %q", got, before)
	}
	if st, err := os.Stat(r.path("a/one")); err != nil || !st.ModTime().Equal(when) {
		t.Errorf("mtime: got %v, %v, want %v", st.ModTime(), err, when)
	}
}

// The store is away: what is cached is read, everything is written, and what is
// not here ends in EIO.
func TestStoreAway(t *testing.T) {
	store := new(mem.Store)
	r := newRig(t, func(o *Options) { o.Store = store })
	uncached := strings.Repeat("x", 20<<10) // too large to come with its attributes
	must(t, r.put("uncached", uncached))
	must(t, os.WriteFile(r.path("cached"), []byte("here"), 0o644))
	if _, err := os.Stat(r.path("uncached")); err != nil {
		t.Fatal(err)
	}
	r.flush()
	heal := store.Inject(mem.Fault{Err: berth.ErrUnavailable})
	if got, err := os.ReadFile(r.path("cached")); err != nil || string(got) != "here" {
		t.Errorf("cached: got %q, %v", got, err)
	}
	must(t, os.Mkdir(r.path("d"), 0o755))
	must(t, os.WriteFile(r.path("d/f"), []byte("written meanwhile"), 0o644))
	must(t, os.Rename(r.path("d/f"), r.path("d/g")))
	if _, err := os.ReadFile(r.path("uncached")); !errors.Is(err, syscall.EIO) {
		t.Errorf("uncached: got %v, want EIO", err)
	}
	heal()
	if got, err := os.ReadFile(r.path("uncached")); err != nil || string(got) != uncached {
		t.Errorf("after it came back: got %d bytes, %v", len(got), err)
	}
	eventually(t, "the uploads resume alone", func() bool {
		got, err := r.object("d/g")
		return err == nil && got == "written meanwhile"
	})
}

// A process that waits for the store can be killed, and signals do not disturb it.
func TestKillWhileWaiting(t *testing.T) {
	store := new(mem.Store)
	r := newRig(t, func(o *Options) { o.Store = store })
	must(t, r.put("slow", strings.Repeat("x", 20<<10)))
	if _, err := os.Stat(r.path("slow")); err != nil {
		t.Fatal(err)
	}
	heal := store.Inject(mem.Fault{Op: mem.OpGet, Hang: true})
	defer heal()
	cmd := exec.Command("cat", r.path("slow"))
	must(t, cmd.Start())
	eventually(t, "cat waits for the store", func() bool { return store.Calls(mem.OpGet) > 0 })
	must(t, cmd.Process.Signal(syscall.SIGCONT))
	must(t, cmd.Process.Kill())
	done := make(chan struct{})
	go func() { cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the process cannot be killed")
		heal()
		<-done
	}
}

// What a file still has to send when it is removed keeps nobody waiting.
func TestRemoveWhileUploading(t *testing.T) {
	store := new(mem.Store)
	r := newRig(t, func(o *Options) { o.Store = store })
	heal := store.Inject(mem.Fault{Op: mem.OpPut, Hang: true})
	defer heal()
	must(t, os.WriteFile(r.path("large"), []byte("so much"), 0o644))
	eventually(t, "its upload runs", func() bool { return store.Calls(mem.OpPut) > 0 })
	must(t, os.Remove(r.path("large")))
	r.flush()
}

// A fifo in the place of a file that was removed has no object.
func TestFifoInPlaceOfFile(t *testing.T) {
	store := new(mem.Store)
	r := newRig(t, func(o *Options) { o.Store = store })
	must(t, os.WriteFile(r.path("a"), []byte("x"), 0o644))
	r.flush()
	heal := store.Inject(mem.Fault{Op: mem.OpDelete, Err: berth.ErrUnavailable})
	must(t, os.Remove(r.path("a")))
	must(t, syscall.Mkfifo(r.path("a"), 0o644))
	heal()
	r.flush()
	if got, err := r.object("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the bucket still has %q, %v", got, err)
	}
}

func TestEviction(t *testing.T) {
	r := newRig(t, func(o *Options) { o.CacheBytes = 1 })
	must(t, os.WriteFile(r.path("clean"), []byte(strings.Repeat("clean", 1000)), 0o644))
	r.flush()
	held, err := os.Create(r.path("held"))
	must(t, err)
	defer held.Close()
	held.WriteString("dirty")
	eventually(t, "the clean content is evicted", func() bool {
		must(t, r.evict(false))
		n, err := r.db.Inode(r.inoOf("clean"))
		return err == nil && n.Remote
	})
	if files := r.contentFiles(); len(files) != 1 {
		t.Errorf("the cache has %v, want the open file only", files)
	}
	if got, err := os.ReadFile(r.path("clean")); err != nil || len(got) != 5000 {
		t.Errorf("read again: got %d bytes, %v", len(got), err)
	}
	// Content without an inode is a leftover of a kill.
	must(t, os.WriteFile(r.cache.Path(1<<40), []byte("x"), 0o600))
	r.started = time.Now().Add(time.Minute)
	must(t, r.evict(true))
	r.makeSafe()
	if _, err := os.Stat(r.cache.Path(1 << 40)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the leftover: got %v", err)
	}
}
