package fusefs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth"
	"berth/fusefs/object"
	"berth/fusefs/object/embedded/embeddedtest"
	"berth/fusefs/object/mem"
)

// The reports below need others who write to the bucket, or a store that fails.
// Each test is named for what was told in them.

// sharedRig mounts a bucket to which others write.
func sharedRig(t *testing.T, change ...func(*Options)) (*rig, *mem.Store) {
	store := new(mem.Store)
	change = append([]func(*Options){func(o *Options) { o.Store, o.Revalidate = store, 20*time.Millisecond }}, change...)
	return newRig(t, change...), store
}

// geesefs#98: a rename of a file that others delete meanwhile ended the server.
func TestReplayRenameOfDeleted(t *testing.T) {
	r, store := sharedRig(t)
	for i := range 30 {
		name := fmt.Sprint("f", i)
		must(t, r.put(name, "content"))
		eventually(t, name+" is here", func() bool { _, err := os.Stat(r.path(name)); return err == nil })
		var both sync.WaitGroup
		both.Go(func() { store.Delete(t.Context(), name, "") })
		both.Go(func() {
			err := os.Rename(r.path(name), r.path(name+".old"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESTALE) {
				t.Errorf("rename: %v", err)
			}
		})
		both.Wait()
	}
	r.flush()
	// What is shown can be read, and is in the bucket.
	eventually(t, "the mount shows what the bucket has", func() bool {
		shown := names(t, r.dir)
		for _, name := range shown {
			if got, err := os.ReadFile(r.path(name)); err != nil || string(got) != "content" {
				return false
			}
		}
		return strings.Join(shown, " ") == strings.Join(r.keys(), " ")
	})
	must(t, os.WriteFile(r.path("after"), []byte("x"), 0o644))
}

// claude-code#62932: a file that others replaced by a longer one was seen cut off
// at its old length.
func TestReplayLongerRemoteFile(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"passthrough": func(*Options) {}, "through daemon": func(o *Options) { o.NoPassthrough = true },
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := sharedRig(t, change)
			content := func(n int) string { return strings.Repeat(fmt.Sprintf("version %04d\n", n), 1+n*40) }
			must(t, r.put("f", content(0)))
			eventually(t, "it is here", func() bool { got, err := os.ReadFile(r.path("f")); return err == nil && len(got) > 0 })
			for n := 1; n <= 8; n++ {
				must(t, r.put("f", content(n)))
				eventually(t, fmt.Sprint("version ", n, " is seen"), func() bool {
					f, err := os.Open(r.path("f"))
					must(t, err)
					defer f.Close()
					st, err := f.Stat()
					must(t, err)
					got := make([]byte, 1<<20)
					k, _ := f.Read(got)
					switch string(got[:k]) {
					case content(n):
						if st.Size() != int64(k) {
							t.Errorf("version %d has size %d and %d bytes", n, st.Size(), k)
						}
						return true
					case content(n - 1):
						return false
					}
					t.Fatalf("version %d: read %d bytes of no version, size %d", n, k, st.Size())
					return false
				})
			}
		})
	}
}

// s3fs#345, s3fs#187: what other tools made is not there by halves.
func TestReplayForeignDirectories(t *testing.T) {
	store := new(mem.Store)
	putInto(t, store, "d/x", "x")
	putInto(t, store, "p/q/f", "f")
	r := newRig(t, func(o *Options) { o.Store = store })
	if err := unix.Rmdir(r.path("d")); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("rmdir of a directory never looked into: got %v, want ENOTEMPTY", err)
	}
	for _, dir := range []string{"p", "p/q"} {
		st, err := os.Stat(r.path(dir))
		if err != nil || st.Mode() != os.ModeDir|0o755 || time.Since(st.ModTime()) > time.Hour {
			t.Errorf("%s: got %v of %v, %v; want 0755 of now", dir, st.Mode(), st.ModTime(), err)
		}
	}
	must(t, os.RemoveAll(r.path("p")))
	must(t, os.Remove(r.path("d/x")))
	must(t, os.Remove(r.path("d")))
	r.flush()
	if got := r.keys(); len(got) > 0 {
		t.Errorf("the bucket still has %q", got)
	}
}

// rclone#4763: a file that changes while it is uploaded.
func TestReplayChangeDuringUpload(t *testing.T) {
	store := new(mem.Store)
	r := newRig(t, func(o *Options) { o.Store = store })
	heal := store.Inject(mem.Fault{Op: mem.OpPut, Prefix: "f", Delay: 300 * time.Millisecond})
	defer heal()
	want := strings.Repeat("first", 10000)
	must(t, os.WriteFile(r.path("f"), []byte(want), 0o644))
	for i := range 3 {
		before := store.Calls(mem.OpPut)
		eventually(t, "an upload is under way", func() bool { return store.Calls(mem.OpPut) > before })
		f, err := os.OpenFile(r.path("f"), os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		more := fmt.Sprint("more", i)
		_, err = f.WriteString(more)
		must(t, errors.Join(err, f.Close()))
		want += more
	}
	r.flush()
	if got, err := r.object("f"); err != nil || got != want {
		t.Errorf("the object has %d bytes, %v, want %d", len(got), err, len(want))
	}
}

// goofys#10, nextcloud#24540: a rename of what is too large for one copy request.
func TestReplayRenameOfLarge(t *testing.T) {
	size := int64(sized(24<<20, 5<<30+200<<20))
	store := embeddedtest.Open(t)
	r := newRig(t, func(o *Options) { o.Store = store })
	flush := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		must(t, r.Flush(ctx, ""))
	}
	f, err := os.Create(r.path("large"))
	must(t, err)
	_, err = f.WriteAt([]byte("end"), size-3)
	must(t, errors.Join(err, f.Close()))
	flush()
	must(t, os.Rename(r.path("large"), r.path("moved")))
	flush()
	if got := r.keys(); len(got) != 1 || got[0] != "moved" {
		t.Errorf("keys: %q", got)
	}
	body, info, err := store.Get(t.Context(), "moved", object.GetOptions{Offset: size - 3})
	must(t, err)
	defer body.Close()
	if end, err := io.ReadAll(body); err != nil || info.Size != size || string(end) != "end" {
		t.Errorf("the object has %d bytes and ends in %q, %v", info.Size, end, err)
	}
}

// rclone#7309: an umount right behind a copy.
func TestReplayUnmountAtOnce(t *testing.T) {
	r := newRig(t)
	must(t, os.WriteFile(r.path("f"), []byte("copied"), 0o644))
	must(t, unix.Unmount(r.dir, unix.MNT_DETACH))
	<-r.Done()
	r.close()
	if got, err := r.object("f"); err != nil || got != "copied" {
		t.Errorf("the object: got %q, %v", got, err)
	}
}

// ZeroFS#572: an outage under many readers left the mount stuck when the store
// was back. Directories that were seen before are listed at once all the while.
func TestReplayOutageUnderReaders(t *testing.T) {
	const readers = 64
	store := new(mem.Store)
	for i := range readers {
		putInto(t, store, fmt.Sprint("d/f", i), fmt.Sprint("content ", i))
	}
	r := newRig(t, func(o *Options) { o.Store = store })
	if _, err := os.Stat(r.path("d")); err != nil {
		t.Fatal(err)
	}
	must(t, os.Mkdir(r.path("seen"), 0o755))
	for i := range readers {
		must(t, os.WriteFile(r.path(fmt.Sprint("seen/f", i)), nil, 0o644))
	}
	r.flush()
	heal := store.Inject(mem.Fault{Hang: true})
	var all sync.WaitGroup
	for i := range readers {
		all.Go(func() {
			for {
				got, err := os.ReadFile(r.path(fmt.Sprint("d/f", i)))
				if err == nil && string(got) == fmt.Sprint("content ", i) {
					return
				}
				if !errors.Is(err, syscall.EIO) {
					t.Errorf("reader %d: %q, %v", i, got, err)
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	listed := func(phase string) {
		t.Helper()
		begun := time.Now()
		for range 20 {
			if got := names(t, r.path("seen")); len(got) != readers {
				t.Errorf("%s: %d names", phase, len(got))
			}
			if err := os.WriteFile(r.path("seen/new"), nil, 0o644); err != nil {
				t.Errorf("%s: %v", phase, err)
			}
			must(t, os.Remove(r.path("seen/new")))
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%s: 20 listings and files took %v", phase, took)
		}
	}
	eventually(t, "the readers wait", func() bool { return store.Calls(mem.OpGet)+store.Calls(mem.OpHead) > 0 })
	listed("while it hangs")
	heal()
	heal = store.Inject(mem.Fault{Err: fmt.Errorf("slow down: %w", berth.ErrUnavailable)})
	listed("while it refuses")
	heal()
	begun := time.Now()
	all.Wait()
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("the readers were through %v after the store was back, want seconds", took)
	}
}
