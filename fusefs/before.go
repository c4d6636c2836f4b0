package fusefs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"berth"
	"berth/fusefs/index"
)

// ErrNotKept is berth's.
var ErrNotKept = berth.ErrNotKept

// Before opens what a path of a tree held at a checkpoint, and tells its size.
// fs.ErrNotExist means that it was no file then; ErrNotKept that nobody knows any
// more. The caller closes the reader; ctx must live until then.
func (f *FS) Before(ctx context.Context, t berth.Tree, path string, checkpoint uint64) (io.ReadCloser, int64, error) {
	r, size, err := f.before(ctx, t, path, checkpoint)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read %s as it was: %w", filepath.Join(treeString(t), path), err)
	}
	return r, size, nil
}

func (f *FS) before(ctx context.Context, t berth.Tree, path string, checkpoint uint64) (io.ReadCloser, int64, error) {
	root, err := f.treeRoot(t)
	if err != nil {
		return nil, 0, err
	}
	if ok, err := f.db.HasCheckpoint(root, checkpoint); err != nil || !ok {
		return nil, 0, errors.Join(err, ErrNotKept)
	}
	at := index.Entry{Ino: root, Type: index.TypeDir}
	for name := range strings.SplitSeq(path, "/") {
		if at, err = f.entryAt(at.Ino, name, checkpoint); err != nil {
			return nil, 0, err
		}
	}
	if at.Type == index.TypeDir || at.Type == index.TypeSymlink {
		return nil, 0, fs.ErrNotExist
	}
	return f.contentAt(ctx, at.Ino, checkpoint)
}

// entryAt returns what a directory had under a name at a checkpoint.
func (f *FS) entryAt(dir index.Ino, name string, checkpoint uint64) (index.Entry, error) {
	// In this order: what is noted is there before the name changes.
	now, nerr := f.db.Lookup(dir, name)
	old, ok, err := f.db.OldEntry(dir, name, checkpoint)
	switch {
	case err != nil:
		return now, err
	case !ok:
		return now, nerr
	case old.Ino == 0:
		return now, fs.ErrNotExist
	}
	return index.Entry{Name: name, Ino: old.Ino, Type: old.Type}, nil
}

// contentAt opens what a file held at a checkpoint.
func (f *FS) contentAt(ctx context.Context, ino index.Ino, checkpoint uint64) (io.ReadCloser, int64, error) {
	s, ok, err := f.db.Saved(ino, checkpoint)
	if err != nil {
		return nil, 0, err
	}
	if ok {
		r, err := f.openSaved(ctx, s)
		return r, s.Size, err
	}
	n, err := f.db.Inode(ino)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotKept
	}
	if err == nil && !n.IsFile() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, 0, err
	}
	file, err := f.openContent(ctx, &n)
	if err != nil {
		return nil, 0, err
	}
	return &presentReader{ctx: ctx, f: f, file: file, ino: ino, checkpoint: checkpoint}, n.Size, nil
}

// openSaved opens what was set aside: here, or from the bucket.
func (f *FS) openSaved(ctx context.Context, s index.Saved) (io.ReadCloser, error) {
	if s.File != "" {
		file, err := f.cache.OpenBefore(s.File)
		if errors.Is(err, fs.ErrNotExist) && f.orphans.has(s.Ino) {
			file, err = f.cache.Open(s.Ino, os.O_RDONLY) // on its way there
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	// It may have been opened for writing and not changed.
	if n, err := f.db.Inode(s.Ino); err == nil && n.Gen == s.Gen && !f.Busy(n.Ino) {
		return f.openContent(ctx, &n)
	}
	prefix, ok := f.trees.prefix(s.Tree)
	if !ok || s.Gen == 0 {
		return nil, ErrNotKept
	}
	c, err := f.sync.OpenStamp(ctx, prefix+s.Path, s.Stamp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotKept // the process died before the bytes were set aside, or they are too old
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// openContent opens the content of an inode for reading, fetching it first.
func (f *FS) openContent(ctx context.Context, n *index.Inode) (*os.File, error) {
	if n.Remote {
		if err := f.sync.Fetch(ctx, n.Ino); err != nil {
			return nil, err
		}
	}
	return f.cache.Open(n.Ino, os.O_RDONLY)
}

// A presentReader reads the present content of a file for as long as it is that of
// a checkpoint, then what was set aside.
type presentReader struct {
	ctx        context.Context
	f          *FS
	file       io.ReadCloser
	ino        index.Ino
	checkpoint uint64
	read       int64
	saved      bool
}

func (r *presentReader) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	if r.saved {
		return n, err
	}
	s, ok, serr := r.f.db.Saved(r.ino, r.checkpoint)
	if serr != nil {
		return 0, serr
	}
	if !ok {
		r.read += int64(n)
		return n, err
	}
	// These bytes may be changed ones; those before are not.
	saved, err := r.f.openSaved(r.ctx, s)
	if err != nil {
		return 0, err
	}
	r.file.Close()
	r.file, r.saved = saved, true
	if _, err := io.CopyN(io.Discard, saved, r.read); err != nil {
		return 0, err
	}
	return r.file.Read(p)
}

func (r *presentReader) Close() error { return r.file.Close() }
