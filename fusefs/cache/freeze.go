package cache

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
)

const immutableFlag = 0x10 // FS_IMMUTABLE_FL of linux/fs.h

// Freezes says whether Freeze stops those who have a file open for writing. It
// does so on ext4, for a process that may set the flag.
func (c *Cache) Freezes() bool { return c.freezes }

// Freeze makes the content file of an inode immutable: who has it open for writing
// gets EPERM, a store through a mapping SIGBUS, and nothing but Thaw or the
// file's removal by this package changes it. The kernel first writes out what is
// dirty, while writers wait.
func (c *Cache) Freeze(ino index.Ino) error { return c.setImmutable(ino, true) }

// Thaw undoes Freeze. A file that is not frozen, or not there, is no error.
func (c *Cache) Thaw(ino index.Ino) error {
	err := c.setImmutable(ino, false)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (c *Cache) setImmutable(ino index.Ino, on bool) error {
	f, err := c.Open(ino, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	return setImmutable(f, on)
}

func setImmutable(f *os.File, on bool) error {
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	want := flags &^ immutableFlag
	if on {
		want |= immutableFlag
	}
	if err == nil && want != flags {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, want)
	}
	if err != nil {
		return fmt.Errorf("cannot set immutable of %s to %v: %w", f.Name(), on, err)
	}
	return nil
}

// canFreeze finds out whether a frozen file stops its writer.
func canFreeze(f *os.File) bool {
	if setImmutable(f, true) != nil {
		return false
	}
	_, err := f.WriteAt([]byte{0}, 0)
	return setImmutable(f, false) == nil && errors.Is(err, unix.EPERM)
}
