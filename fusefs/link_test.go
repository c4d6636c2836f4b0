package fusefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"berth/fusefs/object"
)

// linkFD gives an open file a name.
func linkFD(file *os.File, path string) error {
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
}

// A file made without a name can get one, and is an ordinary file then; without
// one nothing is left of it.
func TestTmpfile(t *testing.T) {
	inModes(t, func(t *testing.T, r *rig) {
		open := func(flags int) *os.File {
			t.Helper()
			file, err := os.OpenFile(r.dir, unix.O_TMPFILE|os.O_RDWR|flags, 0o600)
			must(t, err)
			return file
		}
		lost, kept, locked := open(0), open(0), open(os.O_EXCL)
		for _, file := range []*os.File{lost, kept, locked} {
			if _, err := file.WriteString("hello"); err != nil {
				t.Fatal(err)
			}
		}
		must(t, kept.Chmod(0o640))
		must(t, linkFD(kept, r.path("kept")))
		if err := linkFD(kept, r.path("kept")); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a name that is taken: got %v, want EEXIST", err)
		}
		if err := linkFD(locked, r.path("locked")); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("O_EXCL: got %v, want ENOENT", err)
		}
		if _, err := kept.WriteString(" there"); err != nil {
			t.Fatal(err)
		}
		for _, file := range []*os.File{lost, kept, locked} {
			must(t, file.Close())
		}
		r.flush()
		if got, err := r.object("kept"); err != nil || got != "hello there" {
			t.Errorf("got %q, %v, want %q", got, err, "hello there")
		}
		if got := r.keys(); !slices.Equal(got, []string{"kept"}) {
			t.Errorf("got %q, want only kept", got)
		}
		if st := statOf(t, r.path("kept")); st.Mode&0o777 != 0o640 || st.Nlink != 1 {
			t.Errorf("got mode %o and %d links, want 640 and 1", st.Mode, st.Nlink)
		}
		eventually(t, "the content of files without a name is gone", func() bool { return len(r.orphans.numbers()) == 0 })
	})
}

// numbersOf describes what of files outlives the index.
func numbersOf(t *testing.T, r *rig, names ...string) []string {
	t.Helper()
	var out []string
	for _, name := range names {
		st := statOf(t, r.path(name))
		out = append(out, fmt.Sprintf("%s ino %d links %d mode %o size %d mtime %d ctime %d",
			name, st.Ino, st.Nlink, st.Mode, st.Size, st.Mtim.Nano(), st.Ctim.Nano()))
	}
	return out
}

// The names of one file are one file when all that was known here is lost; so are
// numbers and times.
func TestLinksFromTheBucket(t *testing.T) { onStores(t, linksFromTheBucket) }

func linksFromTheBucket(t *testing.T, r *rig) {
	names := []string{"a", "d/b", "d/deep/c", "plain", "link", "link2", "was"}
	must(t, os.MkdirAll(r.path("d/deep"), 0o755))
	must(t, os.WriteFile(r.path("a"), []byte("one file"), 0o640))
	must(t, os.Link(r.path("a"), r.path("d/b")))
	must(t, os.Link(r.path("d/b"), r.path("d/deep/c")))
	must(t, os.WriteFile(r.path("plain"), []byte("alone"), 0o644))
	must(t, os.Symlink("a", r.path("link")))
	must(t, os.Link(r.path("link"), r.path("link2")))
	must(t, os.WriteFile(r.path("was"), []byte("had two"), 0o644))
	must(t, os.Link(r.path("was"), r.path("gone")))
	r.flush()
	must(t, os.Remove(r.path("gone")))
	r.flush()
	want := numbersOf(t, r, names...)
	for range 2 { // the second time from what the first wrote back
		r.forget()
		if got := numbersOf(t, r, names...); !slices.Equal(got, want) {
			t.Errorf("from the bucket: got %q\nwant %q", got, want)
		}
		must(t, os.Chmod(r.path("plain"), 0o644)) // so that the objects are written again
		must(t, os.Chmod(r.path("a"), 0o640))
		r.flush()
		want = numbersOf(t, r, names...)
	}
	r.forget()
	must(t, os.Rename(r.path("d"), r.path("e"))) // with all that nobody has asked for in it
	r.flush()
	r.forget()
	moved := numbersOf(t, r, "a", "e/b", "e/deep/c")
	for i, line := range moved {
		moved[i] = strings.Replace(line, "e/", "d/", 1)
	}
	if !slices.Equal(moved, want[:3]) {
		t.Errorf("moved unseen: got %q\nwant %q", moved, want[:3])
	}
	must(t, os.Rename(r.path("e"), r.path("d")))
	must(t, os.WriteFile(r.path("d/deep/c"), []byte("changed through one name"), 0o640))
	for _, name := range []string{"a", "d/b"} {
		if got, err := os.ReadFile(r.path(name)); err != nil || string(got) != "changed through one name" {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	must(t, os.Remove(r.path("a")))
	r.flush()
	if got, err := r.object("d/b"); err != nil || got != "changed through one name" {
		t.Errorf("object of another name: got %q, %v", got, err)
	}
	if got := statOf(t, r.path("d/b")).Nlink; got != 2 {
		t.Errorf("got %d links after one went, want 2", got)
	}
}

// A copy that another tool made, metadata and all, is a file of its own.
func TestForeignCopyIsNoLink(t *testing.T) {
	r := newRig(t)
	must(t, os.WriteFile(r.path("a"), []byte("original"), 0o644))
	r.flush()
	_, err := r.store.Copy(t.Context(), "copy", "a", object.CopyOptions{})
	must(t, err)
	before := statOf(t, r.path("a")).Ino
	r.forget()
	copied, a := statOf(t, r.path("copy")), statOf(t, r.path("a"))
	if copied.Ino == a.Ino || copied.Nlink != 1 || a.Ino != before {
		t.Errorf("got numbers %d and %d with %d links, want %d, another, 1", a.Ino, copied.Ino, copied.Nlink, before)
	}
	must(t, os.WriteFile(r.path("copy"), []byte("changed"), 0o644))
	if got, err := os.ReadFile(r.path("a")); err != nil || string(got) != "original" {
		t.Errorf("the original: got %q, %v", got, err)
	}
}

// git finds its tree as it left it after all that was known here is lost: it reads
// no file again.
func TestGitTrustsAColdTree(t *testing.T) {
	var ops opCount
	r := newRig(t, ops.count)
	git := func(script string) string {
		t.Helper()
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
		cmd.Dir = r.dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_OPTIONAL_LOCKS=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	// Files as old as git's index are read in any case.
	git(`git init -q repo; cd repo; git config user.email a@b; git config user.name a
		mkdir d; for i in $(seq 40); do echo $i > d/$i; done; ln -s d/1 link; ln d/2 hard
		touch -d '1 hour ago' d/* hard; touch -hd '1 hour ago' link
		git add -A; git commit -qm one; git status --porcelain`)
	r.flush()
	r.forget()
	ops.opened.Clear()
	if got := git("cd repo; git diff-files --name-only; git status --porcelain"); got != "" {
		t.Errorf("git takes these for changed: %s", got)
	}
	for i := 1; i <= 40; i++ {
		if _, opened := ops.opened.Load(statOf(t, r.path(fmt.Sprint("repo/d/", i))).Ino); opened {
			t.Errorf("d/%d was read", i)
		}
	}
}
