package sync

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"strings"
	"time"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

// moveWait is how long a listing waits for a directory rename that it depends on.
const moveWait = 30 * time.Second

// refreshers is how many listings run in the background at a time.
const refreshers = 4

// List makes sure that the index has what the bucket has in a directory: the
// first time it returns when all of it is there, later at once, while a listing
// older than Revalidate is made anew in the background.
func (s *Syncer) List(ctx context.Context, dir index.Ino) error {
	n, err := s.db.Inode(dir)
	if err != nil {
		return err
	}
	if !n.IsDir() {
		return fmt.Errorf("cannot list inode %d: it is no directory: %w", dir, fs.ErrInvalid)
	}
	if n.Listed == 0 {
		s.missed(&n, false)
		return s.listNow(ctx, dir)
	}
	if s.revalidate > 0 && s.now().Sub(time.Unix(0, n.Listed)) > s.revalidate && s.ctx.Err() == nil {
		s.refresh.TryGo(func() error {
			err := s.lists.do(s.ctx, s.ctx, dir, func(ctx context.Context) error { return s.list(ctx, dir, true) })
			if err != nil && s.ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
				s.failed(err)
			}
			return nil
		})
	}
	return nil
}

// listNow lists a directory for the first time.
func (s *Syncer) listNow(ctx context.Context, dir index.Ino) error {
	return s.lists.do(ctx, s.ctx, dir, func(ctx context.Context) error { return s.list(ctx, dir, false) })
}

// A listing is one pass over a directory's keys.
type listing struct {
	dir      index.Ino
	inode    index.Inode // as it was when the listing began
	marked   bool        // the own marker of the directory was seen
	prefix   string
	publish  bool // what is new is a change, not the first sight
	from     string
	hidden   int
	prefixes map[uint64]struct{} // hashes of the prefixes seen
	seed     maphash.Seed
}

func (l *listing) sawPrefix(p string)      { l.prefixes[maphash.String(l.seed, p)] = struct{}{} }
func (l *listing) seen(p string) (ok bool) { _, ok = l.prefixes[maphash.String(l.seed, p)]; return ok }

// list lists a directory completely and merges page by page.
func (s *Syncer) list(ctx context.Context, dir index.Ino, publish bool) error {
	for range maxRetakes {
		if err := s.waitMoves(ctx, dir); err != nil {
			return err
		}
		n, err := s.db.Inode(dir)
		if err != nil {
			return err
		}
		prefix, err := s.dirKey(dir)
		if err != nil {
			return err
		}
		l := &listing{dir: dir, inode: n, prefix: prefix, publish: publish, from: prefix, prefixes: make(map[uint64]struct{}), seed: maphash.MakeSeed()}
		err = s.listOnce(ctx, l)
		if !errors.Is(err, errChanged) {
			return err
		}
	}
	return fmt.Errorf("cannot list directory %d: it is renamed all the time: %w", dir, object.ErrPrecondition)
}

func (s *Syncer) listOnce(ctx context.Context, l *listing) error {
	start := s.now()
	o := object.ListOptions{Prefix: l.prefix, Delimiter: "/"}
	for holdsKeys(l.prefix) {
		keys := s.touched.begin()
		res, err := s.store.List(ctx, o)
		if err == nil {
			s.reached()
			err = s.merge(ctx, l, res, keys)
		}
		s.touched.end(keys)
		if err != nil {
			return err
		}
		if res.Next == "" {
			break
		}
		o.After = res.Next
	}
	if err := s.dropUnseen(ctx, l); err != nil {
		return err
	}
	s.hidden.set(l.dir, l.hidden)
	return s.db.Update(func(b *index.Batch) error {
		n, err := s.db.Inode(l.dir)
		if err != nil {
			return err
		}
		if key, err := s.dirKey(l.dir); err != nil || key != l.prefix {
			return errors.Join(err, errChanged)
		}
		n.Listed = max(start.UnixNano(), 1)
		b.PutInode(n)
		return nil
	})
}

// waitMoves waits until the index knows all keys that belong to a directory under
// a name it had before, and until none of its keys belong to another that was
// renamed away.
func (s *Syncer) waitMoves(ctx context.Context, dir index.Ino) error {
	ctx, cancel := context.WithTimeoutCause(ctx, moveWait, fmt.Errorf("a rename of the directory is still under way: %w", berth.ErrUnavailable))
	defer cancel()
	for {
		changed := s.changed.wait()
		overlaps, err := s.inMove(dir)
		if err != nil || !overlaps {
			return err
		}
		s.KickMoves()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Syncer) inMove(dir index.Ino) (bool, error) {
	moves, err := s.db.Moves()
	if err != nil || len(moves) == 0 {
		return false, err
	}
	prefix, err := s.dirKey(dir)
	if err != nil {
		return false, err
	}
	for _, m := range moves {
		if strings.HasPrefix(prefix, m.OldPrefix) || strings.HasPrefix(m.OldPrefix, prefix) && m.OldPrefix != "" {
			return true, nil
		}
		moved, err := s.dirKey(m.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		if strings.HasPrefix(prefix, moved) {
			return true, nil
		}
	}
	return false, nil
}

// dropUnseen removes the directories that a complete listing did not have and that
// hold nothing the bucket has yet to get. What Remotes tell of was looked at while
// the pages were merged.
func (s *Syncer) dropUnseen(ctx context.Context, l *listing) error {
	if r, known, err := s.db.Remote(l.prefix); err != nil {
		return err
	} else if known && r.ETag != "" && !l.marked {
		if err := s.vanishFile(ctx, r); err != nil {
			return err
		}
	}
	for after := ""; ; {
		entries, err := s.db.Entries(l.dir, after, movePage)
		if err != nil {
			return err
		}
		for _, e := range entries {
			after = e.Name
			p := l.prefix + e.Name + "/"
			if e.Type != index.TypeDir || l.seen(p) {
				continue
			}
			known, err := s.db.RemotesAfter(p, "", 1)
			if err != nil {
				return err
			}
			if len(known) > 0 {
				continue
			}
			if err := s.vanishDir(ctx, l, e.Name, e.Ino); err != nil {
				return err
			}
		}
		if len(entries) < movePage {
			return nil
		}
	}
}
