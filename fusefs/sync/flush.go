package sync

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"slices"
	"strings"
	"time"

	"berth/fusefs/index"
)

// flushPoll bounds how long Flush sleeps between looks.
const flushPoll = time.Second

// A Progress says what a Flush still waits for.
type Progress struct {
	Files   int   // files, symlinks and directory markers to be uploaded
	Bytes   int64 // of their content
	Deletes int   // objects to be deleted
	Renames int   // directory renames whose objects do not follow yet
}

func (p Progress) String() string {
	return fmt.Sprintf("%d files with %d bytes, %d deletes and %d renames are left", p.Files, p.Bytes, p.Deletes, p.Renames)
}

// Flush returns when everything that was queued, doomed or moved under a prefix of
// the bucket ("" = everywhere) when it was called is done. Files that are being
// written to count if they were queued: fusefs settles or snapshots them first.
// progress, if not nil, is called now and then. When ctx ends first, the error
// tells what is left and why.
func (s *Syncer) Flush(ctx context.Context, prefix string, progress func(Progress)) error {
	defer s.sched.hurry()()
	wake(s.doomHurry)
	f := &flush{s: s, prefix: prefix, seed: maphash.MakeSeed(), began: s.now()}
	for first := true; ; first = false {
		changed := s.changed.wait()
		start := time.Now()
		left, err := f.look(first)
		if err != nil {
			return err
		}
		if progress != nil {
			progress(left)
		}
		if left == (Progress{}) {
			return nil
		}
		if err := f.wait(ctx, changed, time.Since(start)); err != nil {
			if last := s.lastError(f.began); last != nil {
				err = errors.Join(err, last)
			}
			return fmt.Errorf("cannot upload everything: %s: %w", left, err)
		}
	}
}

// A flush is what one call of Flush waits for. It holds numbers and hashes only.
type flush struct {
	s      *Syncer
	prefix string
	seed   maphash.Seed
	began  time.Time
	moves  []uint64
	files  []queued
	doomed []uint64 // hashes of keys, sorted
	caught bool     // files and doomed are filled
}

type queued struct {
	ino index.Ino
	gen uint64
}

// look brings what is waited for up to date. Renames come first, since they queue
// and doom.
func (f *flush) look(first bool) (Progress, error) {
	if first {
		if err := f.catchMoves(); err != nil {
			return Progress{}, err
		}
	}
	if err := f.dropMoves(); err != nil || len(f.moves) > 0 {
		return Progress{Renames: len(f.moves)}, err
	}
	if !f.caught {
		f.caught = true
		if err := f.catch(); err != nil {
			return Progress{}, err
		}
	}
	var left Progress
	if err := f.dropFiles(&left); err != nil {
		return left, err
	}
	return left, f.dropDoomed(&left)
}

// wait sleeps until something was done, but not so short that looking takes most
// of the time.
func (f *flush) wait(ctx context.Context, changed <-chan struct{}, took time.Duration) error {
	f.s.KickDoomed()
	least := time.NewTimer(min(4*took, flushPoll))
	defer least.Stop()
	most := time.NewTimer(flushPoll)
	defer most.Stop()
	select {
	case <-changed:
	case <-most.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-least.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *flush) catchMoves() error {
	moves, err := f.s.db.Moves()
	if err != nil {
		return err
	}
	for _, m := range moves {
		under, err := f.s.under(m.Dir, f.prefix)
		if err != nil {
			return err
		}
		if under || strings.HasPrefix(m.OldPrefix, f.prefix) || strings.HasPrefix(f.prefix, m.OldPrefix) {
			f.moves = append(f.moves, m.Seq)
		}
	}
	f.s.KickMoves()
	return nil
}

func (f *flush) dropMoves() error {
	if len(f.moves) == 0 {
		return nil
	}
	moves, err := f.s.db.Moves()
	if err != nil {
		return err
	}
	f.moves = slices.DeleteFunc(f.moves, func(seq uint64) bool {
		return !slices.ContainsFunc(moves, func(m index.Move) bool { return m.Seq == seq })
	})
	return nil
}

// catch notes what is queued and doomed under the prefix.
func (f *flush) catch() error {
	for after := index.Ino(0); ; {
		inos, _, err := f.s.db.QueuedAfter(after, scanChunk)
		if err != nil {
			return err
		}
		for _, ino := range inos {
			after = ino
			n, err := f.s.db.Inode(ino)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			under, err := f.s.under(ino, f.prefix)
			if err != nil {
				return err
			}
			if under {
				f.files = append(f.files, queued{ino, gen(&n)})
				f.s.sched.kick(ino, 0)
			}
		}
		if len(inos) < scanChunk {
			break
		}
	}
	err := f.eachDoomed(func(_ string, hash uint64) { f.doomed = append(f.doomed, hash) })
	slices.Sort(f.doomed)
	return err
}

func (f *flush) eachDoomed(do func(key string, hash uint64)) error {
	for after := ""; ; {
		keys, err := f.s.db.DoomedAfter(f.prefix, after, doomPage)
		if err != nil {
			return err
		}
		for _, key := range keys {
			after = key
			do(key, maphash.String(f.seed, key))
		}
		if len(keys) < doomPage {
			return nil
		}
	}
}

// dropFiles forgets the files that are stored, also those that were written again
// since.
func (f *flush) dropFiles(left *Progress) error {
	var bad error
	f.files = slices.DeleteFunc(f.files, func(q queued) bool {
		n, pending, err := f.s.unstored(q)
		if err != nil {
			bad = err
		}
		if pending {
			left.Files++
			left.Bytes += n.Size
		}
		return !pending
	})
	return bad
}

// unstored says whether a file still waits: it is queued, and one of its names
// does not hold the generation yet that it had.
func (s *Syncer) unstored(q queued) (n index.Inode, pending bool, err error) {
	if waits, err := s.db.Queued(q.ino); err != nil || !waits {
		return n, false, err
	}
	n, err = s.db.Inode(q.ino)
	if errors.Is(err, fs.ErrNotExist) {
		return n, false, nil
	}
	if err != nil {
		return n, false, err
	}
	if gen(&n) == q.gen {
		return n, true, nil
	}
	names, err := s.wanted(&n)
	for _, w := range names {
		if w.bad != nil {
			continue
		}
		r, _, rerr := s.db.Remote(w.key)
		if rerr != nil {
			return n, false, rerr
		}
		if r.Ino != q.ino || r.Gen < q.gen || r.ETag == "" {
			return n, true, nil
		}
	}
	return n, false, err
}

func (f *flush) dropDoomed(left *Progress) error {
	var bad error
	err := f.eachDoomed(func(key string, hash uint64) {
		if _, ok := slices.BinarySearch(f.doomed, hash); !ok {
			return
		}
		kept, err := f.s.kept(key)
		if err != nil {
			bad = err
		}
		if !kept {
			left.Deletes++
		}
	})
	return errors.Join(err, bad)
}

// kept says whether a doomed key stays, since its file has a name now that no
// store takes.
func (s *Syncer) kept(key string) (bool, error) {
	r, ok, err := s.db.Remote(key)
	if err != nil || !ok {
		return false, err
	}
	n, err := s.db.Inode(r.Ino)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	names, err := s.wanted(&n)
	return slices.ContainsFunc(names, func(w want) bool { return w.bad != nil }), err
}

// under says whether an inode has a key with the prefix.
func (s *Syncer) under(ino index.Ino, prefix string) (bool, error) {
	if prefix == "" {
		return true, nil
	}
	n, err := s.db.Inode(ino)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	names, err := s.db.Names(&n)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		key, err := s.nameKey(name, n.IsDir())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || strings.HasPrefix(key, prefix) {
			return err == nil, err
		}
	}
	return false, nil
}
