package cache

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
)

// Settled says whether nobody can write to an inode's content file any more: no
// descriptor that is open for writing and no shared mapping made from one is left
// in the system. The kernel tells by granting a read lease, which is given back
// at once. The caller keeps new writers out meanwhile.
func (c *Cache) Settled(ino index.Ino) (bool, error) {
	f, err := c.Open(ino, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return SettledFile(f)
}

// SettledFile is Settled for a descriptor that is open for reading only.
func SettledFile(f *os.File) (bool, error) {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if errors.Is(err, unix.EAGAIN) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot take a lease on %s: %w", f.Name(), err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		return false, fmt.Errorf("cannot give back the lease on %s: %w", f.Name(), err)
	}
	return true, nil
}

// WriteOut starts and awaits the writing of a file's dirty pages, without the
// disk's own cache. A store through a mapping that comes later faults again and
// moves the file's mtime.
func WriteOut(f *os.File) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	if err := unix.SyncFileRange(int(f.Fd()), 0, 0, all); err != nil {
		return fmt.Errorf("cannot write out %s: %w", f.Name(), err)
	}
	return nil
}

// StartWriteOut starts the writing of a file's dirty pages and does not wait.
func StartWriteOut(f *os.File) {
	// Only a head start: what must be on disk is synced later.
	unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}
