package sync

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"berth"
	"berth/fusefs/index"
)

// A Status is what there is to do, and how it goes.
type Status struct {
	Files     int       // in the upload queue
	Bytes     int64     // of their content
	Deletes   int       // doomed keys
	Renames   int       // directory renames under way
	Running   int       // uploads
	Oldest    time.Time // when the oldest of the queue was put there; zero if it is empty
	Hidden    int       // names of the bucket that are not shown
	Away      time.Time // since when the store has not answered; zero while it does
	LastError error     // the last failed request to the store, nil if there was none
	ErrorAt   time.Time
	Skew      time.Duration // how far the store's clock was ahead when last seen, to a second
}

// Status counts; with a long queue it takes a while.
func (s *Syncer) Status() (Status, error) {
	st := Status{Running: s.sched.busy(), Hidden: s.hidden.total()}
	err := s.db.Queue(func(ino index.Ino, at int64) bool {
		st.Files++
		if queuedAt := time.Unix(0, at); st.Oldest.IsZero() || queuedAt.Before(st.Oldest) {
			st.Oldest = queuedAt
		}
		if n, err := s.db.Inode(ino); err == nil {
			st.Bytes += n.Size
		} else if !errors.Is(err, fs.ErrNotExist) {
			return false
		}
		return true
	})
	if err != nil {
		return st, err
	}
	if err := s.db.Doomed(func(string) bool { st.Deletes++; return true }); err != nil {
		return st, err
	}
	moves, err := s.db.Moves()
	st.Renames = len(moves)
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	st.LastError, st.ErrorAt, st.Skew = s.health.err, s.health.errAt, s.health.skew
	if away, cause := s.store.Away(); !away.IsZero() {
		st.Away, st.LastError, st.ErrorAt = away, cause, away
	}
	return st, err
}

// lastError returns the last failure if it was not before a time.
func (s *Syncer) lastError(since time.Time) error {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if s.health.errAt.Before(since) {
		return nil
	}
	return s.health.err
}

// health is what the last requests to the store told.
type health struct {
	mu      sync.Mutex // protects the fields below
	err     error      // the last failure
	errAt   time.Time
	outages int           // failures to reach the store in a row
	retryAt time.Time     // until then a further failure is the same outage
	skew    time.Duration // the store's clock ahead of ours
	skewAt  time.Time     // when that was measured
}

// skewEvery is how often the store's clock is looked at.
const skewEvery = 10 * time.Minute

// dueSkew says whether to measure now, at most one caller each time.
func (h *health) dueSkew(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.skewAt.IsZero() && now.Sub(h.skewAt) < skewEvery {
		return false
	}
	h.skewAt = now
	return true
}

// setSkew notes the store's time of an object that was stored just before now.
// Stores give whole seconds, so that half a second is the best guess.
func (h *health) setSkew(modified, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.skew = (modified.Add(time.Second / 2)).Sub(now).Round(time.Second)
	return h.skew
}

// storeAhead is how far the store's clock is ahead of ours.
func (h *health) storeAhead() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.skew
}

// failed notes a failed request and says whether the store is away as a whole,
// in which case everything waits for it.
func (s *Syncer) failed(err error) (outage bool) {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.err, s.health.errAt = err, s.now()
	if !errors.Is(err, berth.ErrUnavailable) {
		return false
	}
	pause := backoff(s.health.outages, firstOutage, mostOutage)
	if s.now().After(s.health.retryAt) {
		s.health.outages++
		s.health.retryAt = s.now().Add(pause)
		s.sched.pause(pause)
	}
	return true
}

// bridged is how long an absence of the store is waited out by those who read.
const bridged = 15 * time.Second

// bridgeTries is how often one call is tried for it.
const bridgeTries = 3

// Bridge waits for the return of a store that has just gone away, and says whether
// a call that failed for that is worth another try.
func (s *Syncer) Bridge(ctx context.Context, tries int) bool {
	return tries < bridgeTries && s.store.Await(ctx, bridged)
}

// storeBack makes what waits for the store go on.
func (s *Syncer) storeBack() {
	s.health.mu.Lock()
	s.health.outages, s.health.retryAt = 0, time.Time{}
	s.health.mu.Unlock()
	s.log.Info("The store answers again")
	s.sched.resume()
	wake(s.doomHurry)
	s.KickDoomed()
	s.KickMoves()
}

// reached notes that the store answered.
func (s *Syncer) reached() {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.outages = 0
}
