package fusefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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
