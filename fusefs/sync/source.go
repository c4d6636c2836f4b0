package sync

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"

	"berth/fusefs/cache"
	"berth/fusefs/index"
)

// Lost tells that the content of an inode should be here and is not. If the bucket
// has it, the inode is Remote afterwards, else the error matches fs.ErrNotExist.
func (s *Syncer) Lost(ino index.Ino) error {
	n, err := s.db.Inode(ino)
	if err != nil || n.Remote {
		return err
	}
	return s.lostContent(&n)
}

// lostContent handles a file whose content should be here and is not: when the
// bucket has this generation it is fetched from there again.
func (s *Syncer) lostContent(n *index.Inode) error {
	if _, ok, err := s.holder(n, ""); err != nil || !ok {
		return errors.Join(err, fmt.Errorf("cannot read content of inode %d: %w", n.Ino, fs.ErrNotExist))
	}
	return ignoreChanged(s.db.Update(func(b *index.Batch) error {
		now, err := s.db.Inode(n.Ino)
		if err != nil {
			return err
		}
		if _, open, err := s.db.OpenMark(n.Ino); err != nil || open || now.Gen != n.Gen {
			return cmp.Or(err, errChanged) // what is written now is here
		}
		now.Remote = true
		b.PutInode(now)
		return nil
	}))
}

// A source is the body of an upload: one generation of an inode, or an error.
type source struct {
	io.ReaderAt
	size  int64
	moved atomic.Bool // the content changed while it was read
	close func()
}

// source opens the content of an inode's generation.
func (s *Syncer) source(n *index.Inode) (*source, error) {
	switch {
	case n.IsDir():
		return &source{ReaderAt: strings.NewReader(""), close: func() {}}, nil
	case n.IsSymlink():
		return &source{ReaderAt: strings.NewReader(n.Target), size: int64(len(n.Target)), close: func() {}}, nil
	case s.hooks.Busy(n.Ino):
		return s.snapshot(n)
	}
	f, err := s.cache.Open(n.Ino, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	st, err := cache.StatFile(f)
	if err == nil && st.Size != n.Size {
		// A change that its commit will tell of, or a crash that fusefs repairs.
		err = errBusy
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	src := &source{size: n.Size, close: func() { f.Close() }}
	src.ReaderAt = &settledReader{s: s, n: *n, f: f, moved: &src.moved}
	return src, nil
}

func (s *Syncer) snapshot(n *index.Inode) (*source, error) {
	path, g, cleanup, ok := s.hooks.Snapshot(n.Ino)
	if !ok {
		return nil, errBusy
	}
	f, err := os.Open(path)
	if err != nil {
		cleanup()
		return nil, err
	}
	src := &source{ReaderAt: f, size: n.Size, close: func() { f.Close(); cleanup() }}
	if info, err := f.Stat(); err != nil || g != n.Gen || info.Size() != n.Size {
		src.close()
		return nil, errors.Join(err, errBusy)
	}
	return src, nil
}

// A settledReader reads a cache file and fails once it may have been written to:
// all that it returned was read while nobody could.
type settledReader struct {
	s     *Syncer
	n     index.Inode
	f     *os.File
	moved *atomic.Bool
}

func (r *settledReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.f.ReadAt(p, off)
	if now, ierr := r.s.db.Inode(r.n.Ino); ierr != nil || now.Gen != r.n.Gen || r.s.hooks.Busy(r.n.Ino) {
		r.moved.Store(true)
		return 0, errBusy
	}
	return n, err
}
