package fusefs

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"berth"
)

// errKilled ends the wait of a caller that is being killed.
var errKilled = errors.New("the caller is being killed")

// errStale is what an operation on an inode that is gone says; the kernel then
// looks the path up again.
var errStale error = syscall.ESTALE

// statusOf is the one table from errors to errno. It logs what the errno cannot
// tell: a cause on our side. It comes at the end of each request that somebody
// waits for, so that it is the place to note that there are some.
func (f *FS) statusOf(op string, ino uint64, err error) fuse.Status {
	f.sync.Active()
	var errno syscall.Errno
	switch {
	case err == nil:
		return fuse.OK
	case errors.Is(err, errKilled):
		return fuse.EINTR
	case errors.Is(err, berth.ErrUnavailable):
		f.log.Warn("Cannot serve a file while the store is away", "op", op, "inode", ino, "cause", err)
		return fuse.EIO
	case errors.As(err, &errno):
		if errno == syscall.EIO || errno == syscall.EINTR || errno == syscall.EMFILE {
			f.log.Error("Cannot serve a file", "op", op, "inode", ino, "cause", err)
			return fuse.EIO
		}
		return fuse.Status(errno)
	case errors.Is(err, fs.ErrNotExist):
		return fuse.ENOENT
	case errors.Is(err, fs.ErrExist):
		return fuse.Status(syscall.EEXIST)
	case errors.Is(err, fs.ErrPermission):
		return fuse.EACCES
	case errors.Is(err, fs.ErrInvalid):
		return fuse.EINVAL
	}
	f.log.Error("Cannot serve a file", "op", op, "inode", ino, "cause", err)
	return fuse.EIO
}
