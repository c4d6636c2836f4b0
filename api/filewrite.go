package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/sys/unix"

	"berth"
)

// removeTime is how long removing a directory with all in it may take.
const removeTime = 10 * time.Minute

// errPrecondition says that If-Match or If-None-Match does not hold.
var errPrecondition = errors.New("the file is not in the state that the request asks for")

// putFile writes a file as a whole: readers see the old content or the new. The
// directories above it are made. With a slash at the end it makes a directory.
func (s *Server) putFile(c echo.Context, p owner) error {
	at, err := s.place(c, p)
	if err != nil {
		return err
	}
	r := c.Request()
	if r.ContentLength > s.o.MaxUpload {
		return fmt.Errorf("cannot write %v: it has %d bytes, at most %d are allowed: %w", at, r.ContentLength, s.o.MaxUpload, ErrTooLarge)
	}
	root, err := s.openTree(r.Context(), at.tree)
	if err != nil {
		return err
	}
	defer root.Close()
	if at.dir {
		return s.makeDir(c, root, at)
	}
	w := &upload{s: s, root: root, at: at, dir: path.Dir(at.full())}
	info, created, err := w.run(c)
	if err != nil {
		return fileError("write", at, err)
	}
	c.Response().Header().Set("ETag", etag(info))
	return c.JSON(createdStatus(created), map[string]any{"size": info.Size(), "mtime": info.ModTime().UTC()})
}

func (s *Server) makeDir(c echo.Context, root *os.Root, at place) error {
	created, err := within(c.Request().Context(), s, func() (bool, error) {
		if info, err := root.Lstat(at.full()); err == nil {
			if !info.IsDir() {
				return false, fs.ErrExist
			}
			return false, nil
		}
		return true, root.MkdirAll(at.full(), 0o755)
	}, nil)
	if err != nil {
		return fileError("make directory", at, err)
	}
	return c.JSON(createdStatus(created), struct{}{})
}

func createdStatus(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// An upload writes one file through a temporary one next to it.
type upload struct {
	s    *Server
	root *os.Root
	at   place
	dir  string // of the file, below the root
	temp string // the temporary file, below the root
}

// run does the whole upload. It returns the new file's attributes and whether
// there was none before.
func (w *upload) run(c echo.Context) (info fs.FileInfo, created bool, err error) {
	ctx := c.Request().Context()
	old, err := w.target(c.Request())
	if err != nil {
		return nil, false, err
	}
	mode := fs.FileMode(0o644)
	if old != nil && old.Mode().IsRegular() {
		mode = old.Mode().Perm()
	}
	w.temp = path.Join(w.dir, berth.PutPrefix+strings.ToLower(rand.Text()[:16]))
	f, err := within(ctx, w.s, func() (*os.File, error) { return w.create(mode) }, w.discard)
	if err != nil {
		return nil, false, err
	}
	if err := w.fill(c, f); err != nil {
		w.discard(f)
		return nil, false, err
	}
	info, err = within(ctx, w.s, func() (fs.FileInfo, error) { return w.commit(f) }, nil)
	if err != nil {
		w.discard(f)
		return nil, false, err
	}
	return info, old == nil, nil
}

// target returns what is at the path now, or nil, if that may be replaced.
func (w *upload) target(r *http.Request) (fs.FileInfo, error) {
	old, err := within(r.Context(), w.s, func() (fs.FileInfo, error) { return lookForPut(w.root, w.at.full()) }, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		old = nil
	case err != nil:
		return nil, err
	case old.IsDir():
		return nil, syscall.EISDIR
	}
	match, noneMatch := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	if match != "" && (old == nil || match != "*" && match != etag(old)) || noneMatch == "*" && old != nil {
		return nil, errPrecondition
	}
	return old, nil
}

// errLink says that a path names a symbolic link, which is neither written
// through, since it may lead anywhere, nor silently replaced.
var errLink = errors.New("it is a symbolic link; delete it first, or write to where it leads")

// lookForPut is Lstat, but fails for symbolic links: with what os.Root says of
// those that lead out, else with errLink.
func lookForPut(root *os.Root, name string) (fs.FileInfo, error) {
	info, err := root.Lstat(name)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return info, err
	}
	if _, err := root.Stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return nil, errLink
}

func (w *upload) create(mode fs.FileMode) (*os.File, error) {
	if err := w.root.MkdirAll(w.dir, 0o755); err != nil {
		return nil, err
	}
	f, err := w.root.OpenFile(w.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(mode); err != nil {
		w.discard(f)
		return nil, err
	}
	return f, nil
}

// fill copies the request's body into the file, piece by piece, each in time.
func (w *upload) fill(c echo.Context, f *os.File) error {
	r := c.Request()
	in := http.NewResponseController(c.Response())
	body := http.MaxBytesReader(c.Response(), r.Body, w.s.o.MaxUpload)
	buf := make([]byte, 128<<10)
	for {
		// A deadline is only refused by a connection that has none, in tests.
		_ = in.SetReadDeadline(time.Now().Add(w.s.o.TransferTime))
		n, readErr := body.Read(buf)
		if n > 0 {
			piece := buf[:n]
			if _, err := within(r.Context(), w.s, func() (int, error) { return f.Write(piece) }, nil); err != nil {
				return err // buf is not used again: the operation may still read it
			}
		}
		var tooLarge *http.MaxBytesError
		switch {
		case errors.Is(readErr, io.EOF):
			_ = in.SetReadDeadline(time.Time{})
			return nil
		case errors.As(readErr, &tooLarge):
			return readErr
		case readErr != nil:
			return fmt.Errorf("the request body ended early (%v): %w", readErr, fs.ErrInvalid)
		}
	}
}

// commit puts the temporary file into its place.
func (w *upload) commit(f *os.File) (fs.FileInfo, error) {
	if err := f.Close(); err != nil {
		return nil, err
	}
	if err := w.root.Rename(w.temp, w.at.full()); err != nil {
		return nil, err
	}
	return w.root.Lstat(w.at.full())
}

// discard removes the temporary file. It has its own time, since the request's
// may be over.
func (w *upload) discard(f *os.File) {
	f.Close()
	_, err := within(context.Background(), w.s, func() (struct{}, error) { return struct{}{}, w.root.Remove(w.temp) }, nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.s.o.Logger.Warn("Cannot remove temporary file of an upload", "tree", w.at.tree.String(), "path", w.temp, "err", err)
	}
}

// deleteFile removes a file, an empty directory, or with ?recursive=1 a
// directory with all in it. A symbolic link is removed, not followed.
func (s *Server) deleteFile(c echo.Context, p owner) error {
	at, err := s.place(c, p)
	if err != nil {
		return err
	}
	if at.path == "" {
		return fmt.Errorf("cannot delete %v: it is the root of the files: %w", at, syscall.EBUSY)
	}
	ctx := c.Request().Context()
	root, err := s.openTree(ctx, at.tree)
	if err != nil {
		return err
	}
	defer root.Close()
	remove, timeout := root.Remove, s.o.FileTimeout
	if c.QueryParam("recursive") == "1" {
		remove, timeout = root.RemoveAll, removeTime
	}
	_, err = withinTime(ctx, s, timeout, func() (struct{}, error) {
		if _, err := root.Lstat(at.full()); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, remove(at.full())
	}, nil)
	switch {
	case errors.Is(err, syscall.ENOTEMPTY):
		return fmt.Errorf("cannot delete %v: the directory is not empty, ?recursive=1 deletes all in it: %w", at, syscall.ENOTEMPTY)
	case err != nil:
		return fileError("delete", at, err)
	}
	return c.NoContent(http.StatusNoContent)
}

// moveFile renames a file or directory within its area: ?move_to=PATH. What is
// at the new path is only replaced with ?overwrite=1.
func (s *Server) moveFile(c echo.Context, p owner) error {
	at, err := s.place(c, p)
	if err != nil {
		return err
	}
	if id := c.QueryParam("restore"); id != "" {
		return s.restoreFile(c, at, id)
	}
	to := place{area: at.area, tree: at.area, base: at.base}
	if to.path, _, err = parsePath(strings.TrimPrefix(c.QueryParam("move_to"), "/"), false); err != nil {
		return err
	}
	if to = to.resolved(); to.tree != at.tree {
		return fmt.Errorf("cannot move %v out of %s: files do not move between trees, only copies do: %w", at, at.tree, syscall.EXDEV)
	}
	if at.path == "" || to.path == "" {
		return fmt.Errorf("cannot move %v to %v: both must be paths below the root of the files: %w", at, to, fs.ErrInvalid)
	}
	flags := uint(unix.RENAME_NOREPLACE)
	if c.QueryParam("overwrite") == "1" {
		flags = 0
	}
	ctx := c.Request().Context()
	root, err := s.openTree(ctx, at.tree)
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = within(ctx, s, func() (struct{}, error) { return struct{}{}, rename(root, at.full(), to.full(), flags) }, nil)
	switch {
	case errors.Is(err, syscall.ENOTEMPTY):
		return fmt.Errorf("cannot move %v: the directory %v is not empty: %w", at, to, syscall.ENOTEMPTY)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("cannot move %v: %v exists, ?overwrite=1 replaces it: %w", at, to, fs.ErrExist)
	case err != nil:
		return fileError("move", at, err)
	}
	return c.JSON(http.StatusOK, struct{}{})
}

// rename moves a name with flags of renameat2. The parents are opened through
// the root; the last names are not followed.
func rename(root *os.Root, from, to string, flags uint) error {
	const dirOnly = os.O_RDONLY | syscall.O_DIRECTORY | syscall.O_NONBLOCK
	fromDir, err := root.OpenFile(path.Dir(from), dirOnly, 0)
	if err != nil {
		return err
	}
	defer fromDir.Close()
	if err := root.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	toDir, err := root.OpenFile(path.Dir(to), dirOnly, 0)
	if err != nil {
		return err
	}
	defer toDir.Close()
	return unix.Renameat2(int(fromDir.Fd()), path.Base(from), int(toDir.Fd()), path.Base(to), flags)
}
