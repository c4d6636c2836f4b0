package sync

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/fusefs/index"
	"berth/fusefs/object"
)

// Times of the loop that deletes doomed keys.
const (
	doomPage  = 1000
	doomRetry = 2 * time.Second // for what waits for an upload; finished uploads delete what they held themselves
	doomIdle  = time.Minute
	doomPace  = 250 * time.Millisecond // between passes
	doomPause = 2 * time.Second        // at most, between long ones
)

// doomLoop deletes the keys of the doom list until ctx ends.
func (s *Syncer) doomLoop(ctx context.Context) {
	for ctx.Err() == nil {
		s.sched.lull(ctx)
		began := s.doomWork.Load()
		start := time.Now()
		deleted, left, err := s.doomPass(ctx)
		wait := doomIdle
		switch {
		case err != nil && ctx.Err() == nil:
			s.failed(err)
			wait = doomRetry
		case deleted > 0 && left > 0 || s.doomWork.Load() != began:
			wait = 0
		case left > 0:
			wait = doomRetry
		}
		if err := s.sweepOrphans(); err != nil {
			s.log.Error("Cannot remove files without a name", "cause", err)
		}
		s.doomRest(ctx, time.Since(start))
		if wait > 0 {
			sleep(ctx, s.doomWake, wait)
		}
	}
}

// doomRest waits after a pass, which looks at the whole list: it may take a fifth
// of the time, or half of it while somebody waits in Flush.
func (s *Syncer) doomRest(ctx context.Context, took time.Duration) {
	rest := min(max(4*took, doomPace), doomPause)
	if s.sched.isHurried() {
		rest = min(took, doomPause)
	}
	sleep(ctx, s.doomHurry, rest)
}

// sweepOrphans removes the inodes that lost their last name to the bucket while
// they were open, once they are not.
func (s *Syncer) sweepOrphans() error {
	inos, err := s.db.Orphans()
	if err != nil {
		return err
	}
	for _, ino := range inos {
		if s.hooks.InUse(ino) {
			continue
		}
		if err := s.db.Update(func(b *index.Batch) error { b.DeleteInode(ino); return nil }); err != nil {
			return err
		}
		if err := s.cache.Remove(ino); err != nil {
			return err
		}
	}
	return nil
}

// doomPass goes through the doom list once. left counts the keys that have to
// wait.
func (s *Syncer) doomPass(ctx context.Context) (deleted, left int64, err error) {
	var done, kept atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.parallel)
	for after := ""; ctx.Err() == nil; {
		keys, err := s.db.DoomedAfter("", after, doomPage)
		if err != nil {
			return 0, 0, err
		}
		for _, key := range keys {
			after = key
			group.Go(func() error {
				ok, err := s.deleteDoomed(ctx, key)
				switch {
				case errors.Is(err, errTaken) || errors.Is(err, errBusy) || err == nil && !ok:
					kept.Add(1)
					return nil
				case err == nil:
					done.Add(1)
					s.changed.notify()
				}
				return err
			})
		}
		if len(keys) < doomPage {
			break
		}
	}
	err = group.Wait()
	return done.Load(), kept.Load(), err
}

// deleteHeld deletes the doomed keys that held an inode which is stored now.
func (s *Syncer) deleteHeld(ctx context.Context, ino index.Ino) {
	held, err := s.db.Holders(ino)
	for _, r := range held {
		if r.Doomed && err == nil {
			_, err = s.deleteDoomed(ctx, r.Key)
			if errors.Is(err, errTaken) || errors.Is(err, errBusy) {
				err = nil
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		s.failed(err) // the loop tries again
	}
}

// deleteDoomed deletes the object of a doomed key if nobody needs it any more.
// done is false when it has to wait.
func (s *Syncer) deleteDoomed(ctx context.Context, key string) (done bool, err error) {
	release, ok := s.claims.key(key)
	if !ok {
		return false, errTaken
	}
	defer release()
	r, ok, err := s.db.Remote(key)
	if err != nil || !ok || !r.Doomed {
		return true, err
	}
	p, err := s.find(key)
	if err != nil {
		return false, err
	}
	if p.holds() {
		return s.reprieve(r)
	}
	if r.Intent.Gen != 0 {
		if r, err = s.settleDoomed(ctx, r); err != nil || !r.Doomed {
			return err == nil, err
		}
	}
	if r.ETag == "" {
		return true, s.forget(r)
	}
	if wait, err := s.neededYet(r); err != nil || wait {
		return false, err
	}
	if wait, err := s.hold(r); err != nil || wait {
		return false, err
	}
	if err := s.keepParent(ctx, p); err != nil {
		return false, err
	}
	return true, s.deleteObject(ctx, r)
}

// reprieve takes a key off the doom list, since a name has it again. done is false
// when that was renamed or removed meanwhile: its commit left the key doomed, and
// doomed it has to stay.
func (s *Syncer) reprieve(r index.Remote) (done bool, err error) {
	var ino index.Ino
	err = s.db.Update(func(b *index.Batch) error {
		p, err := s.find(r.Key)
		if err != nil {
			return err
		}
		if !p.holds() {
			return errChanged
		}
		if err := s.stillIs(r); err != nil {
			return err
		}
		ino = p.entry.Ino
		next := r
		next.Doomed = false
		b.PutRemote(next)
		b.Enqueue(ino, s.now().UnixNano())
		return nil
	})
	if err != nil {
		return false, ignoreChanged(err)
	}
	s.sched.kick(ino, 0)
	return true, nil
}

// settleDoomed finds out what became of an upload to a key that is to be deleted.
func (s *Syncer) settleDoomed(ctx context.Context, r index.Remote) (index.Remote, error) {
	next := r
	next.Intent = index.Intent{}
	info, err := s.store.Head(ctx, r.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return index.Remote{Key: r.Key}, s.forget(r)
	case err != nil:
		return r, err
	}
	ours, err := s.arrived(r, info, decodeAttributes(info, strings.HasSuffix(r.Key, "/")))
	switch {
	case err != nil:
		return r, err
	case ours:
		next.ETag, next.LastModified, next.Size = info.ETag, unixNano(info.LastModified), info.Size
		next.Ino, next.Gen, next.Stamp, next.AttrStamp = r.Intent.Ino, r.Intent.Gen, r.Intent.Stamp, r.Intent.AttrStamp
	case r.ETag == "" || !sameVersion(r, info):
		return index.Remote{Key: r.Key}, s.resurrect(r, info)
	}
	err = s.setRemote(r, next)
	return next, err
}

// forget removes what is known of a key whose object is gone.
func (s *Syncer) forget(r index.Remote) error {
	return ignoreChanged(s.db.Update(func(b *index.Batch) error {
		cur, ok, err := s.db.Remote(r.Key)
		if err != nil || !ok {
			return err
		}
		if cur.ETag != r.ETag || cur.Intent != r.Intent {
			return errChanged
		}
		b.DeleteRemote(r.Key)
		s.touched.add(r.Key)
		return nil
	}))
}

// neededYet says whether a doomed object has to stay for now: it is a marker with
// doomed keys below, or its inode is not stored under a name of its own yet.
func (s *Syncer) neededYet(r index.Remote) (bool, error) {
	if strings.HasSuffix(r.Key, "/") {
		below, err := s.db.DoomedAfter(r.Key, r.Key, 1)
		if err != nil || len(below) > 0 {
			return true, err
		}
	}
	n, err := s.db.Inode(r.Ino)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	stored, err := s.storedElsewhere(&n, r.Key)
	if err != nil || stored {
		return false, err
	}
	queued, err := s.db.Queued(r.Ino)
	if err != nil || queued {
		return true, err
	}
	if kept, err := s.kept(r.Key); err != nil || kept {
		return true, err
	}
	err = s.db.Update(func(b *index.Batch) error { b.Enqueue(r.Ino, s.now().UnixNano()); return nil })
	s.sched.kick(r.Ino, 0)
	return true, err
}

// keepParent gives a directory a marker before its last object goes, so that it
// does not vanish from the bucket with it.
func (s *Syncer) keepParent(ctx context.Context, p place) error {
	if p.name.Parent == 0 {
		return nil
	}
	empty := false
	err := s.db.Update(func(b *index.Batch) error {
		n, err := s.db.Inode(p.name.Parent)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (n.Parent == 0 || n.Explicit) {
			return nil
		}
		if err != nil {
			return err
		}
		entries, err := s.db.Entries(n.Ino, "", 1)
		if err != nil || len(entries) > 0 {
			return err
		}
		empty = true
		n.Explicit = true
		if n.AttrStamp.IsZero() {
			n.AttrStamp = s.clock.Now()
		}
		b.PutInode(n)
		b.Enqueue(n.Ino, s.now().UnixNano())
		return nil
	})
	if err != nil || !empty {
		return err
	}
	_, err = s.upload(ctx, p.name.Parent, nil)
	return err
}

// deleteObject deletes the object that a Remote tells of, or takes over what
// somebody else put there since.
func (s *Syncer) deleteObject(ctx context.Context, r index.Remote) error {
	if err := s.keepDeleted(ctx, r); err != nil {
		return err
	}
	err := s.store.Delete(ctx, r.Key, r.ETag)
	switch {
	case err == nil:
		s.reached()
		return s.forget(r)
	case errors.Is(err, object.ErrOverlap):
		return errTaken // a key below it is still there
	case !errors.Is(err, object.ErrPrecondition):
		return err
	}
	info, err := s.store.Head(ctx, r.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.forget(r)
	case err != nil:
		return err
	case sameVersion(r, info):
		return errTaken // the store saw another change at the same time
	}
	return s.resurrect(r, info)
}

// resurrect brings a file back that somebody else wrote after what was removed
// here.
func (s *Syncer) resurrect(r index.Remote, info object.Info) error {
	if err := s.forget(r); err != nil || strings.HasSuffix(r.Key, "/") {
		return err
	}
	return s.adopt(r.Key, info)
}
