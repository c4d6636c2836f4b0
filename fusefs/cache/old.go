package cache

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
)

func (c *Cache) oldPath(ino index.Ino, gen uint64) string {
	return filepath.Join(c.dir, oldDir, snapName(ino, gen))
}

// Renew gives an inode an empty content file and keeps the one that it has, which
// holds a generation, as old content. Nobody may have it open.
func (c *Cache) Renew(ino index.Ino, gen uint64) error {
	if err := os.Rename(c.Path(ino), c.oldPath(ino, gen)); err != nil {
		return fmt.Errorf("cannot keep old content of %d: %w", ino, err)
	}
	f, err := c.Create(ino)
	if err != nil {
		return err
	}
	return f.Close()
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

// Olds returns the generation of the old content of each inode that has such.
func (c *Cache) Olds() (map[index.Ino]uint64, error) {
	names, err := readNames(filepath.Join(c.dir, oldDir))
	if err != nil {
		return nil, fmt.Errorf("cannot list old content: %w", err)
	}
	out := make(map[index.Ino]uint64)
	for _, name := range names {
		if ino, gen, ok := splitSnapName(name); ok {
			out[ino] = gen
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
