package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"berth/fusefs/index"
)

func (c *Cache) beforePath(name string) string { return filepath.Join(c.dir, beforeDir, name) }

// SetAside clones the content of an open file under a name in the "before"
// directory.
func (c *Cache) SetAside(src *os.File, name string) error {
	temp, err := c.Temp()
	if err != nil {
		return err
	}
	if err := c.CloneFile(src, temp); err != nil {
		discard(temp)
		return err
	}
	return c.place(temp, c.beforePath(name))
}

// LinkAside gives the content file of an inode that is going away a second name
// in the "before" directory. It is fs.ErrNotExist when there is no such file.
func (c *Cache) LinkAside(ino index.Ino, name string) error {
	link := func() error { return errors.Join(c.RemoveBefore(name), os.Link(c.Path(ino), c.beforePath(name))) }
	err := link()
	if errors.Is(err, fs.ErrPermission) && c.Thaw(ino) == nil { // it was frozen
		err = link()
	}
	if err != nil {
		return fmt.Errorf("cannot set aside content of %d: %w", ino, err)
	}
	return nil
}

// LinkBefore gives what was set aside a second name there.
func (c *Cache) LinkBefore(name, second string) error {
	err := os.Link(c.beforePath(name), c.beforePath(second))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot set aside content again: %w", err)
	}
	return nil
}

// OpenBefore opens for reading what was set aside under a name.
func (c *Cache) OpenBefore(name string) (*os.File, error) {
	return openFile(c.beforePath(name), os.O_RDONLY)
}

// HasBefore says whether something was set aside under a name.
func (c *Cache) HasBefore(name string) bool {
	_, err := statPath(c.beforePath(name))
	return err == nil
}

// RemoveBefore removes it; that it is not there is no error.
func (c *Cache) RemoveBefore(name string) error { return removeFile(c.beforePath(name)) }

// Befores returns the names of all that was set aside, with what each is.
func (c *Cache) Befores() (map[string]Stat, error) {
	names, err := readNames(filepath.Join(c.dir, beforeDir))
	if err != nil {
		return nil, fmt.Errorf("cannot list what was set aside: %w", err)
	}
	out := make(map[string]Stat, len(names))
	for _, name := range names {
		st, err := statPath(c.beforePath(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[name] = st
	}
	return out, nil
}
