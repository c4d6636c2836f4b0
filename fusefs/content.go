package fusefs

import (
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"berth/fusefs/cache"
	"berth/fusefs/index"
)

// Fsync serves fsync(2) and fdatasync(2): content, attributes and name.
func (r *rawFS) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	f := r.fs
	err := f.withOpen(index.Ino(in.NodeId), f.syncContent)
	if err == nil {
		err = f.syncIndex()
	}
	return f.statusOf("fsync", in.NodeId, err)
}

// withOpen runs do with the openFile of an inode that the caller has open.
func (f *FS) withOpen(ino index.Ino, do func(o *openFile) error) error {
	o := f.opens.peek(ino)
	if o == nil {
		return syscall.EBADF
	}
	defer f.opens.put(o, 1)
	return do(o)
}

// Fallocate serves fallocate(2).
func (r *rawFS) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	f, c := r.fs, callerOf(cancel, &in.InHeader)
	if in.Mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_COLLAPSE_RANGE) == 0 {
		if err := f.takeSpace(c, index.Ino(in.NodeId), int64(in.Length)); err != nil {
			return f.statusOf("fallocate", in.NodeId, err)
		}
	}
	err := f.withWriter(c, index.Ino(in.NodeId), false, func(o *openFile, fd int) error {
		st, err := f.statLocked(o)
		if err != nil {
			return err
		}
		length, size := allocated(in, st.Size)
		if length <= 0 {
			return nil
		}
		return f.growingLocked(o, size, func() error {
			return ignoringEINTR(func() error { return unix.Fallocate(fd, in.Mode, int64(in.Offset), length) })
		})
	})
	return f.statusOf("fallocate", in.NodeId, err)
}

// allocated returns how much of what a request is about is to be allocated in a
// file of a size, and the size that the file will have. Nothing is allocated
// beyond the end that a file keeps: those blocks would count nowhere.
func allocated(in *fuse.FallocateIn, size int64) (length, newSize int64) {
	off, length := int64(in.Offset), int64(in.Length)
	switch {
	case in.Mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_COLLAPSE_RANGE) != 0:
		return length, size
	case in.Mode&unix.FALLOC_FL_INSERT_RANGE != 0:
		return length, size + length
	case in.Mode&unix.FALLOC_FL_KEEP_SIZE != 0:
		return min(length, size-off), size
	}
	return length, max(size, off+length)
}

// Lseek serves SEEK_DATA and SEEK_HOLE.
func (r *rawFS) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	f := r.fs
	if in.Whence != unix.SEEK_DATA && in.Whence != unix.SEEK_HOLE {
		return fuse.EINVAL
	}
	err := f.withOpen(index.Ino(in.NodeId), func(o *openFile) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.blocks != nil {
			off, err := seekBlocks(o.blocks, int64(in.Offset), int(in.Whence))
			out.Offset = uint64(off)
			return err
		}
		if o.r == nil {
			return syscall.EBADF
		}
		off, err := f.seekLocked(o, int64(in.Offset), int(in.Whence))
		out.Offset = uint64(off)
		return err
	})
	return f.statusOf("lseek", in.NodeId, err)
}

// seekLocked finds data or a hole. Of a file that may be written to through this
// process all is data: the kernel does not write out first what was stored through
// a mapping, and there a hole of the content file has data.
func (f *FS) seekLocked(o *openFile, at int64, whence int) (int64, error) {
	if o.through || !o.marked {
		return unix.Seek(int(o.r.Fd()), at, whence)
	}
	st, err := f.statLocked(o)
	switch {
	case err != nil:
		return 0, err
	case at >= st.Size:
		return 0, syscall.ENXIO
	case whence == unix.SEEK_DATA:
		return at, nil
	}
	return st.Size, nil
}

// CopyFileRange serves copy_file_range(2) within this file system.
func (r *rawFS) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	f, c := r.fs, callerOf(cancel, &in.InHeader)
	var src int
	var length int64
	err := f.withOpen(index.Ino(in.NodeId), func(o *openFile) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.blocks != nil {
			return syscall.EOPNOTSUPP // the kernel then reads, which fetches the pieces
		}
		if o.r == nil {
			return syscall.EBADF
		}
		// A copy, since the destination may be the same openFile and the lock must
		// not be held over both.
		fd, err := unix.FcntlInt(o.r.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		src = fd
		if err != nil {
			return err
		}
		st, err := cache.StatFile(o.r)
		length = max(0, min(int64(min(in.Len, 1<<30)), st.Size-int64(in.OffIn)))
		return err
	})
	if err != nil {
		return 0, f.statusOf("copy_file_range", in.NodeId, err)
	}
	defer unix.Close(src)
	if err := f.takeSpace(c, index.Ino(in.NodeIdOut), length); err != nil {
		return 0, f.statusOf("copy_file_range", in.NodeIdOut, err)
	}
	var copied int
	err = f.withWriter(c, index.Ino(in.NodeIdOut), false, func(o *openFile, fd int) error {
		from, to := int64(in.OffIn), int64(in.OffOut)
		return f.growingLocked(o, to+length, func() error {
			return ignoringEINTR(func() (err error) {
				copied, err = unix.CopyFileRange(src, &from, fd, &to, int(length), 0)
				return err
			})
		})
	})
	if errors.Is(err, syscall.EXDEV) {
		err = syscall.EOPNOTSUPP // the kernel then copies through memory
	}
	return uint32(copied), f.statusOf("copy_file_range", in.NodeId, err)
}

// Flush is refused for good: close(2) need not wait, since the open mark was
// journalled at open.
func (r *rawFS) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status { return fuse.ENOSYS }

func ignoringEINTR(do func() error) error {
	for {
		if err := do(); err != unix.EINTR {
			return err
		}
	}
}
