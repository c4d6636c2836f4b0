package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
)

func (c *Cache) oldPath(ino index.Ino, gen uint64) string {
	return filepath.Join(c.dir, oldDir, snapName(ino, gen))
}

// Renew gives an inode an empty content file, in one step, and keeps the one that
// it has, which holds a generation, as old content. Nobody may have that in use: see
// Unused.
func (c *Cache) Renew(ino index.Ino, gen uint64) error {
	old := c.oldPath(ino, gen)
	err := os.Link(c.Path(ino), old)
	if errors.Is(err, fs.ErrExist) {
		err = errors.Join(removeFile(old), os.Link(c.Path(ino), old))
	}
	if err != nil {
		return fmt.Errorf("cannot keep old content of %d: %w", ino, err)
	}
	temp, err := c.Temp()
	if err != nil {
		return err
	}
	return c.Adopt(temp, ino)
}

// Unused says whether nobody has the content file of an inode open or mapped, be it
// for reading only.
func (c *Cache) Unused(ino index.Ino) bool {
	f, err := c.Open(ino, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close() // which gives the lease back
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	return err == nil
}

// Restore makes old content the content file of an inode again.
func (c *Cache) Restore(ino index.Ino, gen uint64) error {
	if err := os.Rename(c.oldPath(ino, gen), c.Path(ino)); err != nil {
		return fmt.Errorf("cannot restore old content of %d: %w", ino, err)
	}
	return nil
}

// Take gives an inode the content file of another, which then has none.
func (c *Cache) Take(ino, from index.Ino) error {
	if err := os.Rename(c.Path(from), c.Path(ino)); err != nil {
		return fmt.Errorf("cannot give content of %d to %d: %w", from, ino, err)
	}
	return nil
}

// RemoveOld removes old content; that there is none is no error.
func (c *Cache) RemoveOld(ino index.Ino, gen uint64) error {
	return removeFile(c.oldPath(ino, gen))
}

// Olds returns the generation of the old content of each inode that has such, the
// last one where an earlier is still to be removed.
func (c *Cache) Olds() (map[index.Ino]uint64, error) {
	names, err := readNames(filepath.Join(c.dir, oldDir))
	if err != nil {
		return nil, fmt.Errorf("cannot list old content: %w", err)
	}
	out := make(map[index.Ino]uint64)
	for _, name := range names {
		if ino, gen, ok := splitSnapName(name); ok {
			out[ino] = max(out[ino], gen)
		}
	}
	return out, nil
}

// SyncVolume writes all that the volume of the cache has in memory to the disk.
func (c *Cache) SyncVolume() error {
	d, err := os.Open(c.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := ignoringEINTR(func() error { return unix.Syncfs(int(d.Fd())) }); err != nil {
		return fmt.Errorf("cannot sync the volume of %s: %w", c.dir, err)
	}
	return nil
}
