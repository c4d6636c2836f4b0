package fusefs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"berth"
	"berth/fusefs/index"
	bucketsync "berth/fusefs/sync"
)

// Versions returns the versions of a path of a tree that the bucket's history
// keeps, the latest first. The present content is none of them. The history goes
// by path: what was renamed has none under its new name.
func (f *FS) Versions(ctx context.Context, t berth.Tree, path string) ([]berth.Version, error) {
	key, err := f.historyKey(t, path)
	var out []berth.Version
	if err == nil {
		out, err = f.sync.Versions(ctx, key)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list versions of %s: %w", key, err)
	}
	return out, nil
}

// OpenVersion opens a version of a path, and tells its size. The caller closes the
// reader; ctx must live until then.
func (f *FS) OpenVersion(ctx context.Context, t berth.Tree, path, id string) (io.ReadCloser, int64, error) {
	c, err := f.openVersion(ctx, t, path, id)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read version %q of %s: %w", id, path, err)
	}
	return c, c.Version.Size, nil
}

func (f *FS) openVersion(ctx context.Context, t berth.Tree, path, id string) (*bucketsync.Content, error) {
	key, err := f.historyKey(t, path)
	if err != nil {
		return nil, err
	}
	return f.sync.OpenVersion(ctx, key, id)
}

// Deleted returns the files below a directory of a tree ("" = the whole tree) that
// are not there any more, each with its last version, by path below the directory.
// more says that there may be more than is looked at.
func (f *FS) Deleted(ctx context.Context, t berth.Tree, dir string) (files []berth.DeletedFile, more bool, err error) {
	key, err := f.historyKey(t, dir)
	if err == nil {
		if key != "" && !strings.HasSuffix(key, "/") {
			key += "/"
		}
		files, more, err = f.sync.Deleted(ctx, key)
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot list what was deleted in %q: %w", key, err)
	}
	return files, more, nil
}

// historyKey returns the key of a path, "" being the tree itself.
func (f *FS) historyKey(t berth.Tree, path string) (string, error) {
	if path != "" && (!fs.ValidPath(path) || path == ".") {
		return path, fmt.Errorf("invalid path %q: it must be relative to its tree, without . and ..: %w", path, fs.ErrInvalid)
	}
	root, err := f.treeRoot(t)
	if err != nil {
		return path, err
	}
	prefix, _ := f.trees.prefix(root)
	return prefix + path, nil
}

// Restore gives a path the content of one of its versions, as a new content: what
// is there now becomes a version itself. The directories on the way are made. It
// is a write through the mount like any other, seen by all who watch the path.
func (f *FS) Restore(ctx context.Context, t berth.Tree, path, id string) error {
	if err := f.restore(ctx, t, path, id); err != nil {
		return fmt.Errorf("cannot restore version %q of %s: %w", id, path, err)
	}
	return nil
}

func (f *FS) restore(ctx context.Context, t berth.Tree, name, id string) (err error) {
	c, err := f.openVersion(ctx, t, name, id)
	if err != nil {
		return err
	}
	defer c.Close()
	root, err := os.OpenRoot(filepath.Join(f.opts.Mountpoint, treeString(t)))
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	temp := path.Join(path.Dir(name), berth.PutPrefix+strings.ToLower(rand.Text()[:16]))
	if err = writeRestored(root, temp, c); err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		err = errors.Join(err, ignoreNotExist(root.Remove(temp)))
	}
	return err
}

// writeRestored makes a file or symlink of a version under a temporary name.
func writeRestored(root *os.Root, temp string, c *bucketsync.Content) error {
	if c.Mode&index.TypeMask == index.TypeSymlink {
		target, err := io.ReadAll(io.LimitReader(c, maxTarget))
		if err != nil {
			return err
		}
		return root.Symlink(string(target), temp)
	}
	file, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, c)
	if err == nil {
		err = file.Chmod(fs.FileMode(c.Mode & 0o777))
	}
	return errors.Join(err, file.Close())
}
