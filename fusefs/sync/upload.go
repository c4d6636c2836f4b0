package sync

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"sync"
	"time"

	"berth/fusefs/index"
)

// Why an inode cannot be finished now.
var (
	errBusy  = errors.New("the file is being written to")
	errTaken = errors.New("another upload of the file or its name runs")
)

// Times to wait before an inode is tried again.
const (
	busyRetry   = 2 * time.Second // a settle kicks it sooner
	firstRetry  = time.Second
	mostRetry   = 5 * time.Minute
	firstOutage = 200 * time.Millisecond
	mostOutage  = 15 * time.Second
)

// manyTries is how often an inode whose name was taken is tried again soon.
const manyTries = 50

// maxSteps bounds the tries on one name within one turn.
const maxSteps = 8

// dispatch gives inodes to workers until ctx ends, then waits for them.
func (s *Syncer) dispatch(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	slots := make(chan struct{}, s.parallel)
	for ctx.Err() == nil {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		it, wait := s.sched.take()
		if it == nil {
			<-slots
			sleep(ctx, s.sched.wake, wait)
			continue
		}
		workers.Add(1)
		go func() {
			defer workers.Done()
			retry := s.turn(ctx, it)
			<-slots
			s.sched.done(it, retry)
			s.changed.notify()
		}()
	}
}

// sleep waits for a wake, a time or the end.
func sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// turn works on one inode of the queue and tells when to try again, < 0 for
// not.
func (s *Syncer) turn(ctx context.Context, it *item) time.Duration {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.sched.begin(it, stop)
	done, err := s.upload(ctx, it.ino, nil)
	switch {
	case err == nil && done:
		s.deleteHeld(ctx, it.ino)
		return -1
	case err == nil:
		return debounce // it changed meanwhile
	case ctx.Err() != nil:
		return -1
	case errors.Is(err, errTaken) && it.tries < manyTries:
		it.tries++
		return time.Duration(20+rand.IntN(60)) * time.Millisecond
	case errors.Is(err, errBusy):
		return busyRetry
	}
	if s.failed(err) {
		return 0 // in line again, the pause is for all
	}
	it.tries++
	if it.tries == 1 {
		s.log.Warn("Cannot upload file, it is tried again", "ino", it.ino, "cause", err)
	}
	return backoff(it.tries-1, firstRetry, mostRetry)
}

// upload makes the bucket hold an inode under each of its names. done is false
// when it changed meanwhile, so that it is still queued. chain has the inodes
// that wait for this one.
func (s *Syncer) upload(ctx context.Context, ino index.Ino, chain []index.Ino) (done bool, err error) {
	if err := s.identifyFirst(ctx, ino); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	release, ok := s.claims.ino(ino)
	if !ok {
		return false, errTaken
	}
	defer release()
	n, err := s.db.Inode(ino)
	if errors.Is(err, fs.ErrNotExist) {
		return true, s.db.Update(func(b *index.Batch) error { b.Dequeue(ino); return nil })
	}
	if err != nil {
		return false, err
	}
	names, err := s.wanted(&n)
	if err != nil {
		return false, err
	}
	for _, w := range names {
		if w.bad != nil {
			s.log.Warn("Cannot store file under this name, it stays on this machine only", "key", w.key, "cause", w.bad)
			s.failed(w.bad)
			continue
		}
		if err := s.uploadName(ctx, ino, w, chain); err != nil {
			return false, err
		}
	}
	return s.finish(ino)
}

// A want is a name under which the bucket should hold an inode.
type want struct {
	name index.Name
	key  string
	bad  error // why no store takes the key
}

// wanted returns the names that an inode should be stored under: none when its
// kind is not stored, its tree is gone, or it is a directory that needs no
// marker.
func (s *Syncer) wanted(n *index.Inode) ([]want, error) {
	if !n.Stored() || n.IsDir() && !n.Explicit {
		return nil, nil
	}
	names, err := s.db.Names(n)
	if err != nil {
		return nil, err
	}
	var out []want
	for _, name := range names {
		key, err := s.nameKey(name, n.IsDir())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, want{name, key, CheckKey(key)})
	}
	return out, nil
}

// isWanted says, inside Update, whether a name still is the inode's and has the
// key.
func (s *Syncer) isWanted(ino index.Ino, w want, dir bool) (bool, error) {
	e, err := s.db.Lookup(w.name.Parent, w.name.Name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && e.Ino != ino {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	key, err := s.nameKey(w.name, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return key == w.key, err
}

// satisfied says whether a Remote is what the bucket should hold of an inode.
func satisfied(r index.Remote, n *index.Inode) bool {
	return r.ETag != "" && r.Ino == n.Ino && r.Gen == gen(n) && r.Stamp == n.Stamp && r.AttrStamp == n.AttrStamp &&
		r.Intent.Gen == 0 && !r.Doomed
}

// finish takes an inode out of the queue if all its names are stored.
func (s *Syncer) finish(ino index.Ino) (done bool, err error) {
	err = s.db.Update(func(b *index.Batch) error {
		n, err := s.db.Inode(ino)
		if errors.Is(err, fs.ErrNotExist) {
			b.Dequeue(ino)
			done = true
			return nil
		}
		if err != nil {
			return err
		}
		names, err := s.wanted(&n)
		if err != nil {
			return err
		}
		for _, w := range names {
			r, _, err := s.db.Remote(w.key)
			if err != nil || w.bad == nil && !satisfied(r, &n) {
				return err
			}
		}
		b.Dequeue(ino)
		done = true
		return nil
	})
	return done && err == nil, err
}

// uploadName makes the bucket hold an inode under one of its names.
func (s *Syncer) uploadName(ctx context.Context, ino index.Ino, w want, chain []index.Ino) error {
	release, ok := s.claims.key(w.key)
	if !ok {
		return errTaken
	}
	defer release()
	for range maxSteps {
		done, err := s.step(ctx, ino, w, chain)
		if err != nil || done {
			return err
		}
	}
	return errTaken
}

// step does one request, or what has to come before it. done is true when
// nothing is left to do for the name.
func (s *Syncer) step(ctx context.Context, ino index.Ino, w want, chain []index.Ino) (done bool, err error) {
	n, err := s.db.Inode(ino)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if ok, err := s.isWanted(ino, w, n.IsDir()); err != nil || !ok {
		return true, err
	}
	r, known, err := s.db.Remote(w.key)
	if err != nil {
		return false, err
	}
	if !known {
		r.Key = w.key
		if old, err := s.inOldPlace(w.key); err != nil || old {
			return false, errors.Join(err, errTaken)
		}
	}
	switch {
	case r.Intent.Gen != 0:
		return false, s.settleIntent(ctx, r, &n, w)
	case satisfied(r, &n):
		return true, nil
	case r.ETag != "" && r.Ino != ino && r.Ino != 0 && !n.IsDir():
		if wait, err := s.hold(r); err != nil || wait {
			return false, errors.Join(err, errBusy)
		}
		if err := s.makeRoom(ctx, r, append(chain, ino)); err != nil {
			return false, err
		}
	}
	return false, s.send(ctx, &n, w, r, chain)
}
