package fusefs

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
)

// fillDir gives a directory many names without the kernel.
func (r *rig) fillDir(dir index.Ino, count int) {
	r.t.Helper()
	for at := 0; at < count; at += 5000 {
		must(r.t, r.db.Update(func(b *index.Batch) error {
			for i := at; i < min(at+5000, count); i++ {
				ino, err := r.db.NewIno()
				if err != nil {
					return err
				}
				name := fmt.Sprintf("name-%06d", i)
				b.PutInode(index.Inode{Ino: ino, Tree: index.RootIno, Mode: index.TypeFifo | 0o644, Links: 1, Mtime: 1, Ctime: 1})
				b.Link(dir, name, ino, index.TypeFifo)
			}
			return nil
		}))
	}
}

func (r *rig) inoOf(name string) index.Ino {
	r.t.Helper()
	var st unix.Stat_t
	must(r.t, unix.Lstat(r.path(name), &st))
	return index.Ino(st.Ino)
}

func TestHugeDirectory(t *testing.T) {
	const count = 100_000
	r := newRig(t)
	must(t, os.Mkdir(r.path("d"), 0o755))
	r.fillDir(r.inoOf("d"), count)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d, err := os.Open(r.path("d"))
	must(t, err)
	defer d.Close()
	seen := make(map[string]bool, count)
	for {
		names, err := d.Readdirnames(1000)
		for _, n := range names {
			if seen[n] {
				t.Fatalf("%s came twice", n)
			}
			seen[n] = true
		}
		if err == io.EOF {
			break
		}
		must(t, err)
	}
	if len(seen) != count {
		t.Errorf("got %d names, want %d", len(seen), count)
	}
	runtime.ReadMemStats(&after)
	r.dirs.mu.Lock()
	defer r.dirs.mu.Unlock()
	for _, h := range r.dirs.open {
		h.mu.Lock()
		defer h.mu.Unlock()
		entries := 0
		for _, p := range h.loaded {
			entries += len(p)
		}
		if entries > 3*dirPage || len(h.pages) > count/dirPage+2 {
			t.Errorf("the handle keeps %d entries and %d pages", entries, len(h.pages))
		}
	}
}

// rm -r reads and removes in turns.
func TestRemoveAll(t *testing.T) {
	r := newRig(t)
	must(t, os.Mkdir(r.path("d"), 0o755))
	r.fillDir(r.inoOf("d"), 5000)
	must(t, os.RemoveAll(r.path("d")))
	if _, err := os.Lstat(r.path("d")); !os.IsNotExist(err) {
		t.Errorf("after RemoveAll: %v", err)
	}
}

// Names that stay are given exactly once, whatever comes and goes meanwhile.
func TestReaddirWhileChanging(t *testing.T) {
	r := newRig(t)
	must(t, os.Mkdir(r.path("d"), 0o755))
	r.fillDir(r.inoOf("d"), 3000)
	d, err := os.Open(r.path("d"))
	must(t, err)
	defer d.Close()
	var got []string
	for i := 0; ; i++ {
		names, err := d.Readdirnames(7)
		got = append(got, names...)
		if err == io.EOF {
			break
		}
		must(t, err)
		if last := got[len(got)-1]; i%2 == 0 {
			must(t, os.Remove(r.path("d/"+last))) // it was given already
			must(t, os.WriteFile(r.path(fmt.Sprintf("d/a%d", i)), nil, 0o644))
		}
	}
	slices.Sort(got)
	stay := slices.DeleteFunc(slices.Clone(got), func(n string) bool { return n[0] == 'a' })
	if len(stay) != 3000 || len(slices.Compact(stay)) != 3000 {
		t.Errorf("got %d names, %d of them different, want 3000", len(stay), len(slices.Compact(stay)))
	}
}

func TestSeekdir(t *testing.T) {
	r := newRig(t)
	must(t, os.Mkdir(r.path("d"), 0o755))
	r.fillDir(r.inoOf("d"), 2000)
	fd, err := unix.Open(r.path("d"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd)
	read := func() string {
		buf := make([]byte, 4096)
		n, err := unix.ReadDirent(fd, buf)
		must(t, err)
		_, _, names := unix.ParseDirent(buf[:n], 1, nil)
		if len(names) == 0 {
			return ""
		}
		return names[0]
	}
	var places []int64
	var firsts []string
	for {
		at, err := unix.Seek(fd, 0, 1)
		must(t, err)
		first := read()
		if first == "" {
			break
		}
		places, firsts = append(places, at), append(firsts, first)
	}
	for i := len(places) - 1; i >= 0; i-- {
		_, err := unix.Seek(fd, places[i], 0)
		must(t, err)
		if got := read(); got != firsts[i] {
			t.Fatalf("at %d: got %q, want %q", places[i], got, firsts[i])
		}
	}
}
