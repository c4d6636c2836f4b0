package fusefs

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"berth"
	"berth/fusefs/index"
)

func withQuota(bytes, files int64) func(*Options) {
	return func(o *Options) { o.BucketQuota = Quota{bytes, files} }
}

// usageError says where the usage that is kept is not what is there. Nothing
// settles meanwhile.
func (f *FS) usageError() error {
	return f.db.Update(func(*index.Batch) error {
		counted, err := f.db.CountUsage()
		if err != nil {
			return err
		}
		for root := range f.trees.all() {
			if got, want := f.db.StoredUsage(root), counted[root]; got != want {
				err = errors.Join(err, fmt.Errorf("tree %d: the usage kept is %+v, that of its inodes %+v", root, got, want))
			}
		}
		return err
	})
}

// checkUsage compares the usage kept with the index, and with a walk of the mount
// when all that was open has settled.
func (r *rig) checkUsage() {
	r.t.Helper()
	if err := r.usageError(); err != nil {
		r.t.Error(err)
	}
	want := r.walkUsage()
	eventually(r.t, fmt.Sprintf("the usage is %+v", want), func() bool {
		got, _, _ := r.db.Usage(index.RootIno)
		return got == want
	})
}

func (r *rig) walkUsage() index.Usage {
	r.t.Helper()
	var sum index.Usage
	seen := make(map[uint64]bool)
	must(r.t, filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == r.dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if seen[st.Ino] {
			return nil
		}
		seen[st.Ino] = true
		sum.Files++
		if info.Mode().IsRegular() {
			sum.Bytes += info.Size()
		}
		return nil
	}))
	return sum
}

// TestFileQuota takes the last place of a tree and gives it back, in each way
// that an inode comes into being.
func TestFileQuota(t *testing.T) {
	r := newRig(t, withQuota(0, 3))
	must(t, os.WriteFile(r.path("a"), []byte("a"), 0o644))
	must(t, os.Mkdir(r.path("d"), 0o755))
	must(t, os.Symlink("a", r.path("l")))
	makers := map[string]func(path string) error{
		"create":  func(p string) error { return os.WriteFile(p, nil, 0o644) },
		"mkdir":   func(p string) error { return os.Mkdir(p, 0o755) },
		"symlink": func(p string) error { return os.Symlink("a", p) },
		"fifo":    func(p string) error { return unix.Mkfifo(p, 0o644) },
		"mknod":   func(p string) error { return unix.Mknod(p, unix.S_IFREG|0o644, 0) },
	}
	for name, make := range makers {
		if err := make(r.path("x")); !errors.Is(err, syscall.EDQUOT) {
			t.Errorf("%s in a full tree: got %v, want EDQUOT", name, err)
		}
	}
	must(t, os.Link(r.path("a"), r.path("b"))) // no inode more
	must(t, os.Rename(r.path("b"), r.path("d/b")))
	r.checkUsage()
	for name, make := range makers {
		must(t, os.Remove(r.path("l")))
		if err := make(r.path("l")); err != nil {
			t.Errorf("%s with one place left: %v", name, err)
		}
		r.checkUsage()
	}
}

// TestByteQuota fills a tree to the last byte in each way that a file grows.
func TestByteQuota(t *testing.T) {
	for _, passthrough := range []bool{true, false} {
		t.Run(fmt.Sprintf("passthrough=%v", passthrough), func(t *testing.T) {
			testByteQuota(t, newRig(t, withQuota(1<<20, 0), func(o *Options) { o.NoPassthrough = !passthrough }))
		})
	}
}

func testByteQuota(t *testing.T, r *rig) {
	full := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, syscall.EDQUOT) {
			t.Errorf("%s: got %v, want EDQUOT", what, err)
		}
	}
	must(t, os.WriteFile(r.path("src"), make([]byte, 100_000), 0o644))
	f, err := os.OpenFile(r.path("f"), os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	defer f.Close()
	fd := int(f.Fd())
	const left = 1<<20 - 100_000

	full("truncate", f.Truncate(left+1))
	must(t, f.Truncate(left))
	must(t, f.Truncate(10))
	full("fallocate", unix.Fallocate(fd, 0, 0, left+1))
	must(t, unix.Fallocate(fd, 0, 0, left))
	must(t, f.Truncate(0))
	must(t, unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 1<<30))
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	if cached, err := r.cache.Stat(index.Ino(st.Ino)); err != nil || cached.Used != 0 {
		t.Errorf("beyond the end %d bytes were allocated (%v)", cached.Used, err)
	}
	if n, err := f.WriteAt([]byte("x"), left); n != 0 || !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("a byte behind the last: wrote %d, %v", n, err)
	}
	n, err := unix.Pwrite(fd, make([]byte, left+5), 0)
	if n != left || err != nil {
		t.Errorf("wrote %d of %d bytes that fit, %v", n, left, err)
	}
	_, err = f.WriteAt([]byte("x"), left)
	full("write", err)
	if st, err := f.Stat(); err != nil || st.Size() != left {
		t.Errorf("the file has %d bytes, want %d (%v)", st.Size(), left, err)
	}
	_, err = f.WriteAt(make([]byte, 1000), 0) // in place
	must(t, err)

	must(t, f.Truncate(left-50_000))
	src, err := os.Open(r.path("src"))
	must(t, err)
	defer src.Close()
	var from, to int64 = 0, left - 50_000
	_, err = unix.CopyFileRange(int(src.Fd()), &from, fd, &to, 100_000, 0)
	full("copy_file_range", err)
	from, to = 50_000, left-50_000
	if n, err := unix.CopyFileRange(int(src.Fd()), &from, fd, &to, 100_000, 0); n != 50_000 || err != nil {
		t.Errorf("copy of what fits: %d, %v", n, err)
	}

	// A file without a name counts until it is closed.
	must(t, os.Remove(r.path("f")))
	full("write with an open file unlinked", os.WriteFile(r.path("g"), []byte("x"), 0o644))
	must(t, f.Close())
	eventually(t, "what was unlinked is free", func() bool { return os.WriteFile(r.path("g"), make([]byte, left), 0o644) == nil })
	// One that is open for reading only does too.
	g, err := os.Open(r.path("g"))
	must(t, err)
	defer g.Close()
	must(t, os.Remove(r.path("g")))
	full("write with an unlinked file open for reading", os.WriteFile(r.path("h"), []byte("x"), 0o644))
	must(t, g.Close())
	eventually(t, "what was unlinked is free", func() bool { return os.WriteFile(r.path("h"), make([]byte, left), 0o644) == nil })
	// Replaced content is free at once.
	must(t, os.WriteFile(r.path("src"), make([]byte, 100_000), 0o644))
	r.checkUsage()
}

// TestStatfs shows the limit and what is left of it.
func TestStatfs(t *testing.T) {
	r := newRig(t, withQuota(8<<20, 100))
	must(t, os.WriteFile(r.path("f"), make([]byte, 3<<20), 0o644))
	var st unix.Statfs_t
	must(t, unix.Statfs(r.path("f"), &st))
	if size, left := int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize; size != 8<<20 || left != 5<<20 {
		t.Errorf("got %d of %d bytes left, want 5 of 8 MiB", left, size)
	}
	if st.Files != 100 || st.Ffree != 99 {
		t.Errorf("got %d of %d files left, want 99 of 100", st.Ffree, st.Files)
	}
	trees := r.Status().Trees
	if len(trees) != 1 || trees[0].Used != (Quota{3 << 20, 1}) || trees[0].Limit != (Quota{8 << 20, 100}) || trees[0].Full {
		t.Errorf("the status has %+v", trees)
	}
}

// TestUsage changes a tree at random, here and in the bucket, and finds the usage
// exact at the end and after a new start.
func TestUsage(t *testing.T) {
	r := newRig(t, withQuota(0, 1<<20))
	rnd := rand.New(rand.NewPCG(1, 2))
	name := func() string { return fmt.Sprintf("d%d/f%d", rnd.IntN(3), rnd.IntN(8)) }
	for i := range 3 {
		must(t, os.Mkdir(r.path(fmt.Sprint("d", i)), 0o755))
	}
	var open []*os.File
	for i := range 3000 {
		a, b := r.path(name()), r.path(name())
		switch rnd.IntN(12) {
		case 0, 1:
			os.WriteFile(a, make([]byte, rnd.IntN(5000)), 0o644)
		case 2:
			if f, err := os.OpenFile(a, os.O_RDWR|os.O_CREATE, 0o644); err == nil && len(open) < 20 {
				open = append(open, f)
			} else {
				f.Close()
			}
		case 3:
			os.Remove(a)
		case 4:
			os.Rename(a, b)
		case 5:
			os.Link(a, b)
		case 6:
			os.Truncate(a, int64(rnd.IntN(9000)))
		case 7:
			os.Symlink("x", a)
		case 8:
			unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
		case 9:
			os.Mkdir(a, 0o755)
		case 10:
			if len(open) > 0 {
				n := rnd.IntN(len(open))
				open[n].WriteAt(make([]byte, rnd.IntN(5000)), int64(rnd.IntN(5000)))
				if rnd.IntN(2) == 0 {
					open[n].Close()
					open = append(open[:n], open[n+1:]...)
				}
			}
		case 11:
			if i%5 == 0 {
				must(t, r.put(name()+"r", strings.Repeat("r", rnd.IntN(5000))))
			}
		}
		if i%1000 == 0 {
			if err := r.usageError(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, f := range open {
		f.Close()
	}
	r.flush()
	r.close()
	r.open()
	r.checkUsage() // the walk lists what the bucket had besides
	if err := r.usageError(); err != nil {
		t.Error(err)
	}
	must(t, os.RemoveAll(r.path("d0")))
	r.checkUsage()
}

// TestWorkspaceQuota has two trees share what their workspace may hold, and a
// tree of another workspace not.
func TestWorkspaceQuota(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.WholeBucket = false
		o.Quotas = Quotas{Member: Quota{Bytes: 1000}, Shared: Quota{Bytes: 1000}, Workspace: Quota{Bytes: 1500, Files: 4}}
	})
	path := func(tree berth.Tree, name string) string { return r.path(tree.String() + "/" + name) }
	ann, shared, other := berth.MemberTree("w", "ann"), berth.SharedTree("w"), berth.SharedTree("other")
	for _, tree := range []berth.Tree{ann, shared, other} {
		must(t, r.AttachTree(t.Context(), tree))
	}
	full := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, syscall.EDQUOT) {
			t.Errorf("%s: got %v, want EDQUOT", what, err)
		}
	}
	must(t, os.WriteFile(path(ann, "f"), make([]byte, 1000), 0o644))
	full("one more", os.Truncate(path(ann, "f"), 1001))
	must(t, os.WriteFile(path(shared, "f"), make([]byte, 500), 0o644))
	full("more than the workspace's", os.Truncate(path(shared, "f"), 501))
	must(t, os.WriteFile(path(other, "f"), make([]byte, 1000), 0o644))
	must(t, os.WriteFile(path(ann, "g"), nil, 0o644))
	must(t, os.WriteFile(path(shared, "g"), nil, 0o644))
	full("a file more than the workspace's", os.WriteFile(path(ann, "h"), nil, 0o644))
	must(t, os.WriteFile(path(other, "g"), nil, 0o644))
	must(t, os.Truncate(path(ann, "f"), 0))
	must(t, os.Truncate(path(shared, "f"), 1000))
}
