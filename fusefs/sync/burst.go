package sync

import (
	"context"
	"sync/atomic"
	"time"
)

// While files are being changed here the bucket waits, so that those who change
// them get the processor and the disk.
const (
	burstLength  = 100 * time.Millisecond // a burst ends so long after the last change or use
	burstMost    = 10 * time.Second       // the bucket waits for a burst no longer than this
	burstUploads = 2                      // and then so many uploads go on beside it
)

// A burst is a time in which one change follows another, or at least the use of
// files goes on after one.
type burst struct {
	began, last time.Time    // the first change and the last
	used        atomic.Int64 // when files were used last, Unix ns; the other fields are the scheduler's
}

// touch notes a change.
func (b *burst) touch(now time.Time) {
	b.look()
	if now.Sub(b.last) >= burstLength {
		b.began = now
	}
	b.last = now
}

// look lets use go on what a change began. It comes at least once in burstLength
// while uploads wait.
func (b *burst) look() {
	if used := time.Unix(0, b.used.Load()); used.After(b.last) && used.Sub(b.last) < 2*burstLength {
		b.last = used
	}
}

// left is how long the burst goes on if nothing more is done; not positive when
// there is none.
func (b *burst) left(now time.Time) time.Duration {
	b.look()
	return burstLength - now.Sub(b.last)
}

// uploads is how many uploads may go on beside the burst.
func (b *burst) uploads(now time.Time) int {
	if now.Sub(b.began) < burstMost {
		return 0
	}
	return burstUploads
}

// touch notes that a file is being changed.
func (s *scheduler) touch() {
	s.mu.Lock()
	s.burst.touch(s.now())
	s.mu.Unlock()
}

// lull waits until no burst holds back what is done for the bucket, or ctx ends.
func (s *scheduler) lull(ctx context.Context) {
	for {
		hurried := s.hurried.wait()
		s.mu.Lock()
		now := s.now()
		d := s.burst.left(now)
		held := d > 0 && s.urgent == 0 && s.burst.uploads(now) == 0
		s.mu.Unlock()
		if !held || ctx.Err() != nil {
			return
		}
		sleep(ctx, hurried, d)
	}
}
