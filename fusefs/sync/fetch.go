package sync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"berth/fusefs/index"
	"berth/fusefs/object"
)

// How content is read: up to wholeFetch in one request, else see Blocks.
const (
	wholeFetch  = 8 << 20
	pieceFlight = 4 // requests of a large object that is fetched whole
	copyBuffer  = 256 << 10
	maxTarget   = 4095 // of a symlink: longer ones cannot be made in Linux
)

// maxRetakes is how often a changed object is looked at anew before giving up.
const maxRetakes = 4

// Fetch brings the whole content of a Remote inode into its cache file, all of
// one generation, and clears Remote; an inode that was Bare is described as
// well. It returns at once if the content is here. fs.ErrNotExist means that the
// file is gone from the bucket, and from the index unless others wrote to it.
func (s *Syncer) Fetch(ctx context.Context, ino index.Ino) error {
	n, err := s.db.Inode(ino)
	if err != nil {
		return err
	}
	if !n.Remote && !n.Bare {
		return nil
	}
	s.missed(&n, true)
	return s.fetchNow(ctx, ino)
}

// fetchNow is Fetch of what nobody waits for.
func (s *Syncer) fetchNow(ctx context.Context, ino index.Ino) error {
	return s.fetches.do(ctx, s.ctx, ino, func(ctx context.Context) error { return s.retake(ctx, ino, s.fetch) })
}

// retake calls f until it has the inode as the bucket has it.
func (s *Syncer) retake(ctx context.Context, ino index.Ino, f func(context.Context, *index.Inode, index.Remote) error) error {
	for range maxRetakes {
		n, err := s.db.Inode(ino)
		if err != nil {
			return err
		}
		if !n.Remote && !n.Bare {
			return nil
		}
		r, ok, err := s.origin(&n)
		if err != nil {
			return err
		}
		if !ok && !n.Remote {
			return s.believe(ino)
		}
		if !ok {
			return fmt.Errorf("cannot find content of inode %d in the bucket: %w", ino, fs.ErrNotExist)
		}
		err = f(ctx, &n, r)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, object.ErrPrecondition):
			if err := s.followHolder(ctx, r); err != nil {
				return err
			}
		case !errors.Is(err, errChanged):
			return err
		}
	}
	return fmt.Errorf("cannot read inode %d from the bucket: it changes all the time: %w", ino, object.ErrPrecondition)
}

// believe ends that an inode is Bare which was written to before it was described:
// what is here is the truth.
func (s *Syncer) believe(ino index.Ino) error {
	return s.db.Update(func(b *index.Batch) error {
		n, err := s.db.Inode(ino)
		if err != nil || n.Remote {
			return err
		}
		n.Bare = false
		b.PutInode(n)
		return s.retypeLocked(b, &n, &n)
	})
}

// origin returns an object that has an inode's generation, of a directory its
// marker, which may be under a key from before a rename. A directory without one
// is a Remote without an ETag.
func (s *Syncer) origin(n *index.Inode) (index.Remote, bool, error) {
	if n.IsDir() {
		key, err := s.dirKey(n.Ino)
		if err != nil {
			return index.Remote{}, false, err
		}
		r, ok, err := s.db.Remote(key)
		if err != nil || ok && r.ETag != "" && r.Ino == n.Ino {
			return r, true, err
		}
		if held, ok, err := s.holder(n, key); err != nil || ok {
			return held, ok, err
		}
		r.Key = key
		return r, true, nil
	}
	return s.holder(n, "")
}

// fetch does one try of Fetch.
func (s *Syncer) fetch(ctx context.Context, n *index.Inode, r index.Remote) error {
	if n.IsDir() {
		return s.describe(ctx, n, r)
	}
	if r.Size > wholeFetch {
		return s.fetchLarge(ctx, n, r)
	}
	temp, err := s.cache.Temp()
	if err != nil {
		return err
	}
	keep := false
	defer func() {
		if !keep {
			temp.Close()
			os.Remove(temp.Name())
		}
	}()
	info, err := s.download(ctx, r, temp)
	if err != nil {
		return err
	}
	s.reached()
	a := decodeAttributes(info, false)
	if n.Bare && a.mode&index.TypeMask == index.TypeSymlink {
		return s.fetchedLink(n, r, info, a, temp)
	}
	mtime := n.Mtime
	if n.Bare {
		mtime = a.mtime
	}
	if err := os.Chtimes(temp.Name(), time.Time{}, time.Unix(0, mtime)); err != nil {
		return fmt.Errorf("cannot set time of fetched content: %w", err)
	}
	return s.updateAndKick(func(b *index.Batch) (kick index.Ino, err error) {
		now, err := s.sameLocked(n, r)
		if err != nil || !now.Remote {
			return 0, err // replaced or fetched meanwhile
		}
		if now.Bare {
			if kick, err = s.describeLocked(b, &now, r, info, a, ""); err != nil || !now.Remote {
				return kick, err // another name of a file whose content is here
			}
		}
		keep = true
		if err := s.cache.Adopt(temp, now.Ino); err != nil {
			return 0, err
		}
		now.Remote = false
		b.MarkUnsynced(now.Ino, index.Unsynced{}) // a power cut may leave anything in its place
		b.PutInode(now)
		return kick, nil
	})
}

// fetchedLink notes that what was fetched is the target of a symlink.
func (s *Syncer) fetchedLink(n *index.Inode, r index.Remote, info object.Info, a attributes, body *os.File) error {
	target := make([]byte, min(r.Size, maxTarget+1))
	if _, err := body.ReadAt(target, 0); err != nil {
		return fmt.Errorf("cannot read symlink %q: %w", r.Key, err)
	}
	if len(target) == 0 || len(target) > maxTarget {
		a.mode = defaultFileMode
		target = nil
	}
	return s.described(n, r, info, a, string(target))
}

// download writes an object into a file, leaving holes where it has only zeros.
func (s *Syncer) download(ctx context.Context, r index.Remote, to *os.File) (object.Info, error) {
	if err := to.Truncate(r.Size); err != nil {
		return object.Info{}, fmt.Errorf("cannot make room for %q: %w", r.Key, err)
	}
	body, info, err := s.store.Get(ctx, r.Key, object.GetOptions{IfMatch: r.ETag})
	if err != nil {
		return object.Info{}, err
	}
	defer body.Close()
	if info.Size != r.Size {
		return object.Info{}, fmt.Errorf("cannot get object %q: it has %d bytes, not %d: %w", r.Key, info.Size, r.Size, object.ErrPrecondition)
	}
	n, err := io.CopyBuffer(&holeWriter{f: to}, io.LimitReader(body, r.Size), make([]byte, min(r.Size+1, copyBuffer)))
	if err == nil && n != r.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return object.Info{}, fmt.Errorf("cannot read object %q: %w", r.Key, err)
	}
	return info, nil
}

// A holeWriter writes in order to a file that reads as zeros, and skips what is
// zero.
type holeWriter struct {
	f  *os.File
	at int64
}

func (w *holeWriter) Write(p []byte) (int, error) {
	if !allZero(p) {
		if n, err := w.f.WriteAt(p, w.at); err != nil {
			return n, err
		}
	}
	w.at += int64(len(p))
	return len(p), nil
}

func allZero(p []byte) bool {
	for _, c := range p {
		if c != 0 {
			return false
		}
	}
	return true
}
