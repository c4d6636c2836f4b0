package fusefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// renameCase is one cell of the matrix: what is at a and at b, and what rename
// says.
type renameCase struct {
	a, b  string // "", file, dir, full, link
	flags uint
	want  error
}

func TestRenameMatrix(t *testing.T) {
	const (
		no   = unix.RENAME_NOREPLACE
		swap = unix.RENAME_EXCHANGE
	)
	cases := []renameCase{
		{"file", "", 0, nil}, {"file", "file", 0, nil}, {"file", "dir", 0, syscall.EISDIR}, {"file", "link", 0, nil},
		{"dir", "", 0, nil}, {"dir", "dir", 0, nil}, {"dir", "file", 0, syscall.ENOTDIR}, {"dir", "full", 0, syscall.ENOTEMPTY},
		{"full", "", 0, nil}, {"full", "dir", 0, nil}, {"link", "", 0, nil}, {"link", "file", 0, nil},
		{"", "file", 0, syscall.ENOENT},
		{"file", "", no, nil}, {"file", "file", no, syscall.EEXIST}, {"full", "dir", no, syscall.EEXIST},
		{"file", "", swap, syscall.ENOENT}, {"file", "file", swap, nil}, {"file", "full", swap, nil},
		{"full", "link", swap, nil}, {"full", "full", swap, nil},
		{"file", "", no | swap, syscall.EINVAL}, {"file", "", unix.RENAME_WHITEOUT, syscall.EINVAL},
	}
	r := newRig(t)
	native := t.TempDir()
	for i, c := range cases {
		name := fmt.Sprintf("%s-to-%s-%d", c.a, c.b, c.flags)
		t.Run(name, func(t *testing.T) {
			ours := filepath.Join(r.dir, fmt.Sprint(i))
			theirs := filepath.Join(native, fmt.Sprint(i))
			for _, dir := range []string{ours, theirs} {
				makeThing(t, dir, "a", c.a)
				makeThing(t, dir, "b", c.b)
			}
			err := unix.Renameat2(unix.AT_FDCWD, ours+"/a", unix.AT_FDCWD, ours+"/b", c.flags)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if c.flags != unix.RENAME_WHITEOUT { // needs no support below
				unix.Renameat2(unix.AT_FDCWD, theirs+"/a", unix.AT_FDCWD, theirs+"/b", c.flags)
			}
			if got, want := treeOf(t, ours), treeOf(t, theirs); !slices.Equal(got, want) {
				t.Errorf("got %q, want as on the disk %q", got, want)
			}
		})
	}
	r.flush()
	want := append(treeKeys(t, r.dir), []string{}...)
	if got := r.keys(); !slices.Equal(got, want) {
		t.Errorf("the bucket has %q, want %q", got, want)
	}
	before := treeOf(t, r.dir)
	r.close()
	must(t, os.RemoveAll(r.state+"/index"))
	must(t, os.RemoveAll(r.state+"/cache"))
	r.open()
	if got := treeOf(t, r.dir); !slices.Equal(got, before) {
		t.Errorf("from the bucket: got %q, want %q", got, before)
	}
}

func makeThing(t *testing.T, dir, name, what string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, name)
	switch what {
	case "file":
		must(t, os.WriteFile(path, []byte("file "+name), 0o644))
	case "dir":
		must(t, os.Mkdir(path, 0o755))
	case "full":
		must(t, os.MkdirAll(path+"/sub/deep", 0o755))
		must(t, os.WriteFile(path+"/one", []byte("one of "+name), 0o644))
		must(t, os.WriteFile(path+"/sub/two", []byte("two of "+name), 0o600))
	case "link":
		must(t, os.Symlink("target of "+name, path))
	}
}

// treeOf describes all that is below a directory.
func treeOf(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %v", strings.TrimPrefix(path, dir), info.Mode())
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		out = append(out, line)
		return nil
	}))
	return out
}

// treeKeys returns the keys that the bucket should have.
func treeKeys(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != dir {
			key := strings.TrimPrefix(path, dir+"/")
			if d.IsDir() {
				key += "/"
			}
			out = append(out, key)
		}
		return err
	}))
	slices.Sort(out)
	return out
}

func TestRenameIntoItself(t *testing.T) {
	r := newRig(t)
	must(t, os.MkdirAll(r.path("a/b/c"), 0o755))
	if err := os.Rename(r.path("a"), r.path("a/b/c/d")); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("got %v, want EINVAL", err)
	}
}

func TestHardLinks(t *testing.T) {
	r := newRig(t)
	must(t, os.WriteFile(r.path("a"), []byte("one"), 0o644))
	must(t, os.Mkdir(r.path("d"), 0o755))
	must(t, os.Link(r.path("a"), r.path("d/b")))
	f, err := os.OpenFile(r.path("d/b"), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	f.WriteString(" two")
	must(t, f.Close())
	for _, name := range []string{"a", "d/b"} {
		var st unix.Stat_t
		must(t, unix.Stat(r.path(name), &st))
		if st.Nlink != 2 || st.Size != 7 {
			t.Errorf("%s: got %d links, %d bytes, want 2, 7", name, st.Nlink, st.Size)
		}
	}
	r.flush()
	for _, key := range []string{"a", "d/b"} {
		if got, err := r.object(key); err != nil || got != "one two" {
			t.Errorf("object %s: got %q, %v", key, got, err)
		}
	}
	must(t, os.Remove(r.path("a")))
	if got, err := os.ReadFile(r.path("d/b")); err != nil || string(got) != "one two" {
		t.Errorf("the other name: got %q, %v", got, err)
	}
	r.flush()
	if got, want := r.keys(), []string{"d/", "d/b"}; !slices.Equal(got, want) {
		t.Errorf("keys: got %q, want %q", got, want)
	}
	if err := os.Link(r.path("d"), r.path("e")); !errors.Is(err, syscall.EPERM) {
		t.Errorf("link of a directory: got %v, want EPERM", err)
	}
}

func TestNames(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("n", 255)
	good := []string{"a b", "new\nline", "#!@+%&?*\"'\\", "café", "cafe\u0301", "\x01\x1f\x7f", long, "-rf", "..."}
	for _, name := range good {
		if err := os.WriteFile(r.path(name), []byte(name), 0o644); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	deep := r.dir
	for range 4 {
		deep += "/" + strings.Repeat("d", 250)
		must(t, os.Mkdir(deep, 0o755))
	}
	bad := map[string]error{
		r.dir + "/" + long + "n":               syscall.ENAMETOOLONG,
		deep + "/" + strings.Repeat("x", 24):   syscall.ENAMETOOLONG,
		r.dir + "/\xff\xfe":                    syscall.EILSEQ,
		r.dir + "/.berth":                      syscall.EPERM,
		deep + "/" + strings.Repeat("é", 100):  syscall.ENAMETOOLONG,
		r.dir + "/a b/" + "under a plain file": syscall.ENOTDIR,
	}
	for path, want := range bad {
		for what, do := range map[string]func() error{
			"create":  func() error { return os.WriteFile(path, nil, 0o644) },
			"mkdir":   func() error { return os.Mkdir(path, 0o755) },
			"symlink": func() error { return os.Symlink("x", path) },
			"rename":  func() error { return os.Rename(r.path("..."), path) },
			"link":    func() error { return os.Link(r.path("..."), path) },
		} {
			if err := do(); !errors.Is(err, want) {
				t.Errorf("%s %.60q: got %v, want %v", what, strings.TrimPrefix(path, r.dir), err, want)
			}
		}
	}
	r.flush()
	for _, name := range good {
		if got, err := r.object(name); err != nil || got != name {
			t.Errorf("object %q: got %q, %v", name, got, err)
		}
	}
	// A move down the tree may not make keys too long either.
	must(t, os.MkdirAll(r.path("m/"+long), 0o755))
	if err := os.Rename(r.path("m"), deep+"/m"); !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("rename of a deep directory: got %v, want ENAMETOOLONG", err)
	}
}

func TestXattrs(t *testing.T) {
	r := newRig(t)
	must(t, os.WriteFile(r.path("f"), nil, 0o644))
	must(t, os.Mkdir(r.path("d"), 0o755))
	for _, p := range []string{r.path("f"), r.path("d")} {
		must(t, unix.Setxattr(p, "user.one", []byte{0, 1, 255}, 0))
		if err := unix.Setxattr(p, "user.one", nil, unix.XATTR_CREATE); err != unix.EEXIST {
			t.Errorf("XATTR_CREATE: got %v, want EEXIST", err)
		}
		if err := unix.Setxattr(p, "user.two", nil, unix.XATTR_REPLACE); err != unix.ENODATA {
			t.Errorf("XATTR_REPLACE: got %v, want ENODATA", err)
		}
		if err := unix.Setxattr(p, "user.big", make([]byte, 1500), 0); err != unix.ENOSPC {
			t.Errorf("large: got %v, want ENOSPC", err)
		}
		for _, name := range []string{"trusted.x", "security.x"} {
			if err := unix.Setxattr(p, name, []byte("x"), 0); err != unix.ENOTSUP {
				t.Errorf("%s: got %v, want ENOTSUP", name, err)
			}
		}
	}
	must(t, unix.Setxattr(r.path("f"), "user.full", make([]byte, 900), 0))
	r.flush()
	r.close()
	must(t, os.RemoveAll(r.state+"/index"))
	r.open()
	for _, p := range []string{r.path("f"), r.path("d")} {
		buf := make([]byte, 10)
		if n, err := unix.Getxattr(p, "user.one", buf); err != nil || string(buf[:n]) != "\x00\x01\xff" {
			t.Errorf("%s from the bucket: got %q, %v", p, buf[:max(n, 0)], err)
		}
	}
}

func TestSpecialFiles(t *testing.T) {
	r := newRig(t)
	must(t, unix.Mkfifo(r.path("fifo"), 0o644))
	must(t, unix.Mknod(r.path("sock"), unix.S_IFSOCK|0o644, 0))
	must(t, unix.Mknod(r.path("file"), unix.S_IFREG|0o600, 0))
	if err := unix.Mknod(r.path("dev"), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))); err != unix.EPERM {
		t.Errorf("device: got %v, want EPERM", err)
	}
	r.flush()
	if got, want := r.keys(), []string{"file"}; !slices.Equal(got, want) {
		t.Errorf("keys: got %q, want %q", got, want)
	}
	r.close()
	r.open()
	if st, err := os.Lstat(r.path("fifo")); err != nil || st.Mode()&fs.ModeNamedPipe == 0 {
		t.Errorf("fifo after a restart: got %v, %v", st, err)
	}
}

// The last child's end does not end the directory, or rm -r would fail.
func TestDirectoryStaysWithoutChildren(t *testing.T) {
	r := newRig(t)
	must(t, r.put("p/q/f", "x"))
	if _, err := os.Stat(r.path("p/q/f")); err != nil {
		t.Fatal(err)
	}
	must(t, os.Remove(r.path("p/q/f")))
	must(t, os.Remove(r.path("p/q")))
	if st, err := os.Stat(r.path("p")); err != nil || st.Mode() != fs.ModeDir|0o755 {
		t.Errorf("got %v, %v", st, err)
	}
	r.flush()
	if got, want := r.keys(), []string{"p/"}; !slices.Equal(got, want) {
		t.Errorf("keys: got %q, want %q", got, want)
	}
}
