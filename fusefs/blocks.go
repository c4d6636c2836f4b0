package fusefs

import (
	"context"
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
	"berth/fusefs/object"
	bucketsync "berth/fusefs/sync"
)

// openBlocks opens the content of a large file that is not here for reading piece
// by piece, and locks the openFile. Such a file does not pass through the kernel:
// its reads come here and wait for their piece. ok is false, and it is not locked,
// if the content is here by now.
func (f *FS) openBlocks(c caller, o *openFile, tree index.Ino) (ok bool, err error) {
	var b *bucketsync.Blocks
	err = f.store(c, "open", o.ino, func(ctx context.Context) (err error) {
		b, err = f.sync.OpenBlocks(ctx, o.ino)
		return err
	})
	if errors.Is(err, bucketsync.ErrLocal) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	o.mu.Lock()
	if o.isOpenLocked() {
		b.Close()
		return true, nil
	}
	if err := f.takeLocked(o, tree); err != nil {
		o.mu.Unlock()
		b.Close()
		return false, err
	}
	o.blocks, o.through = b, false
	return true, nil
}

// leaveBlocksLocked goes on with the content file of a file that was opened in
// pieces, which is whole now or has been replaced by one that is.
func (f *FS) leaveBlocksLocked(o *openFile) error {
	r, err := f.cache.Open(o.ino, os.O_RDONLY)
	if err != nil {
		return err
	}
	o.blocks.Close()
	o.r, o.blocks = r, nil
	return nil
}

// readBlocks reads from a file opened in pieces. Its requests come from processes
// that can be killed meanwhile, and end in EIO when the store does not answer.
func (f *FS) readBlocks(c caller, o *openFile, b *bucketsync.Blocks, buf []byte, off int64) (int, error) {
	n, ok, err := b.Peek(buf, off)
	if !ok {
		if err := f.takeSpace(c, o.ino, int64(len(buf))); err != nil {
			return 0, err
		}
		err = f.store(c, "read", o.ino, func(ctx context.Context) (err error) {
			n, err = b.Read(ctx, buf, off)
			return err
		})
	}
	switch {
	case errors.Is(err, os.ErrClosed): // all of it is in the content file now
		return f.readLocal(o, buf, off)
	case errors.Is(err, object.ErrPrecondition):
		return 0, errors.Join(syscall.ESTALE, err)
	}
	return n, err
}

func (f *FS) readLocal(o *openFile, buf []byte, off int64) (int, error) {
	o.mu.Lock()
	file := o.r
	o.mu.Unlock()
	if file == nil {
		return 0, syscall.EBADF
	}
	return pread(int(file.Fd()), buf, off)
}

// seekBlocks answers lseek(2) of a file opened in pieces, where nobody knows of
// holes.
func seekBlocks(b *bucketsync.Blocks, off int64, whence int) (int64, error) {
	switch {
	case off < 0 || off >= b.Size():
		return 0, syscall.ENXIO
	case whence == unix.SEEK_HOLE:
		return b.Size(), nil
	}
	return off, nil
}
