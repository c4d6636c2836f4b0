package fusefs

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"
)

// A large object that is whole here may not be on the disk yet.
func TestLargeUnsynced(t *testing.T) {
	r, _, content := newLarge(t)
	got, err := os.ReadFile(r.path("large"))
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	ino := r.inoOf("large")
	eventually(t, "the content is here", func() bool {
		n, err := r.db.Inode(ino)
		return err == nil && !n.Remote
	})
	if _, ok, err := r.db.Unsynced(ino); err != nil || !ok {
		t.Errorf("after a power cut nobody would look at it: %v, %v", ok, err)
	}
}

// is on the disk: what is kept is whole.
func TestReplaceTruncated(t *testing.T) {
	r := newRig(t)
	must(t, os.WriteFile(r.path("f"), []byte("old"), 0o644))
	r.settle()
	must(t, os.WriteFile(r.path("f"), []byte("newer"), 0o644))
	must(t, os.WriteFile(r.path("temp"), []byte("newest"), 0o644))
	r.settle()
	f := r.inoOf("f")
	must(t, os.Rename(r.path("temp"), r.path("f")))
	u, ok, err := r.db.Unsynced(r.inoOf("f"))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if u.Old != f {
		t.Errorf("the content of %d is kept, not of %d", u.Old, f)
	}
}

// Who has a file mapped sees what others write to it, after a truncation too.
func TestMappedWhileTruncated(t *testing.T) {
	r := newRig(t)
	must(t, os.WriteFile(r.path("f"), bytes.Repeat([]byte("old."), 1024), 0o644))
	r.settle()
	cmd := exec.Command("python3", "-c", `import mmap, os, sys, ctypes
fd = os.open(sys.argv[1], os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
p = libc.mmap(None, 4096, 1, 1, fd, 0)
os.close(fd)
print(ctypes.string_at(p, 4).decode(), flush=True)
sys.stdin.readline()
print(ctypes.string_at(p, 4).decode(), flush=True)
`, r.path("f"))
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer cmd.Wait()
	defer in.Close()
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "old.\n" {
		t.Fatalf("the mapping has %q, %v", line, err)
	}
	ino := r.inoOf("f")
	eventually(t, "the file is closed", func() bool { return !r.opens.has(ino) })
	must(t, os.WriteFile(r.path("f"), bytes.Repeat([]byte("new."), 1024), 0o644))
	in.Write([]byte("\n"))
	if line, err := lines.ReadString('\n'); err != nil || line != "new.\n" {
		t.Errorf("the mapping has %q, %v", line, err)
	}
}

// opened for.
func TestLostContent(t *testing.T) {
	for name, use := range map[string]func(r *rig) error{
		"read":     func(r *rig) error { _, err := os.ReadFile(r.path("f")); return err },
		"append":   func(r *rig) error { return appendTo(r.path("f"), "") },
		"write":    func(r *rig) error { return os.WriteFile(r.path("f"), []byte("content"), 0o644) },
		"truncate": func(r *rig) error { return os.Truncate(r.path("f"), 7) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			must(t, os.WriteFile(r.path("f"), []byte("content"), 0o644))
			r.flush()
			ino := r.inoOf("f")
			eventually(t, "nobody uses the file", func() bool { return !r.opens.has(ino) })
			must(t, r.cache.Remove(ino))
			must(t, use(r))
			if got, err := os.ReadFile(r.path("f")); err != nil || string(got) != "content" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// An open file is here, whatever an upload saw of its content file.
func TestOpenFileIsNotLost(t *testing.T) {
	r := newRig(t)
	must(t, os.WriteFile(r.path("f"), []byte("content"), 0o644))
	r.flush()
	f, err := os.OpenFile(r.path("f"), os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	must(t, r.sync.Lost(r.inoOf("f")))
	_, err = f.WriteString("new")
	must(t, err)
	must(t, f.Close())
	r.settle()
	if n, err := r.db.Inode(r.inoOf("f")); err != nil || n.Remote {
		t.Errorf("what was written counts as being in the bucket only: %v", err)
	}
}

// nobody from syncing.
func TestSyncAfterEviction(t *testing.T) {
	r := newRig(t)
	must(t, os.WriteFile(r.path("f"), []byte("old"), 0o644))
	must(t, os.WriteFile(r.path("temp"), []byte("new"), 0o644))
	must(t, os.Rename(r.path("temp"), r.path("f")))
	r.flush()
	ino := r.inoOf("f")
	if _, ok, err := r.db.Unsynced(ino); err != nil || !ok {
		t.Fatal("it is synced already", err)
	}
	eventually(t, "it is evicted", func() bool {
		gone, err := r.evictOne(ino)
		return err == nil && gone
	})
	f, err := os.Create(r.path("other"))
	must(t, err)
	if err := f.Sync(); err != nil {
		t.Errorf("fsync of another file: %v", err)
	}
	must(t, f.Close())
}
