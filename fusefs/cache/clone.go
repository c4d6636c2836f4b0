package cache

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
)

// Clone fills dst, an empty file of this cache, with the content of an inode:
// sharing its blocks where the file system can, else by a copy that keeps holes.
// A copy of a file that is written to meanwhile may mix old and new bytes.
func (c *Cache) Clone(ino index.Ino, dst *os.File) error {
	src, err := c.Open(ino, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer src.Close()
	return c.CloneFile(src, dst)
}

// CloneFile is Clone from an open file.
func (c *Cache) CloneFile(src, dst *os.File) error {
	if c.reflink {
		if err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())); err == nil {
			return nil
		}
		// Such as across a quota border: the copy below tells the cause if it is real.
	}
	if err := copySparse(src, dst); err != nil {
		return fmt.Errorf("cannot clone %s: %w", src.Name(), err)
	}
	return nil
}

// copySparse copies the data ranges of src and gives dst the same size.
func copySparse(src, dst *os.File) error {
	st, err := StatFile(src)
	if err != nil {
		return err
	}
	if err := dst.Truncate(st.Size); err != nil {
		return err
	}
	for at := int64(0); at < st.Size; {
		data, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(src.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := copyRange(src, dst, data, min(hole, st.Size)); err != nil {
			return err
		}
		at = hole
	}
	return nil
}

func copyRange(src, dst *os.File, from, to int64) error {
	for from < to {
		in, out := from, from
		n, err := unix.CopyFileRange(int(src.Fd()), &in, int(dst.Fd()), &out, int(min(to-from, 1<<30)), 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
			_, err := io.Copy(io.NewOffsetWriter(dst, from), io.NewSectionReader(src, from, to-from))
			return err
		case err != nil:
			return err
		case n == 0:
			return nil // truncated meanwhile
		}
		from += int64(n)
	}
	return nil
}

// Snapshot freezes the present content of an inode's open content file as that
// of a generation. A snapshot that is already there is replaced.
func (c *Cache) Snapshot(src *os.File, ino index.Ino, gen uint64) error {
	temp, err := c.Temp()
	if err != nil {
		return err
	}
	if err := c.CloneFile(src, temp); err != nil {
		discard(temp)
		return err
	}
	return c.place(temp, c.SnapshotPath(ino, gen))
}

// RemoveSnapshots removes the snapshots of an inode up to a generation, as when
// that one is in the bucket.
func (c *Cache) RemoveSnapshots(ino index.Ino, upTo uint64) error {
	return c.EachSnapshot(func(i index.Ino, gen uint64) error {
		if i != ino || gen > upTo {
			return nil
		}
		return c.RemoveSnapshot(i, gen)
	})
}

// RemoveSnapshot removes one snapshot; that there is none is no error.
func (c *Cache) RemoveSnapshot(ino index.Ino, gen uint64) error {
	return removeFile(c.SnapshotPath(ino, gen))
}

// EachSnapshot calls f for each snapshot until f returns an error.
func (c *Cache) EachSnapshot(f func(ino index.Ino, gen uint64) error) error {
	names, err := readNames(filepath.Join(c.dir, snapDir))
	if err != nil {
		return fmt.Errorf("cannot list snapshots: %w", err)
	}
	for _, name := range names {
		if ino, gen, ok := splitSnapName(name); ok {
			if err := f(ino, gen); err != nil {
				return err
			}
		}
	}
	return nil
}

// SnapshotPath returns where the snapshot of a generation is or would be.
func (c *Cache) SnapshotPath(ino index.Ino, gen uint64) string {
	return filepath.Join(c.dir, snapDir, snapName(ino, gen))
}

// HasSnapshot says whether there is one.
func (c *Cache) HasSnapshot(ino index.Ino, gen uint64) bool {
	_, err := os.Lstat(c.SnapshotPath(ino, gen))
	return err == nil
}
