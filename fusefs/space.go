package fusefs

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"berth/fusefs/cache"
	"berth/fusefs/index"
)

// The floor of the cache's volume: what content leaves free, for the index and
// for others. Above it lies a reserve; when that is used up clean content goes.
const (
	floorPart   = 20      // of the volume's size, at most
	floorMost   = 4 << 30 //
	reservePart = 16
	reserveMost = 1 << 30
	spaceWait   = 10 * time.Second // for room, then ENOSPC
)

// A space is what the cache's volume has left above its floor.
type space struct {
	cache   *cache.Cache
	floor   int64
	size    int64
	reserve int64
	left    atomic.Int64 // as of the last look, less what was given away since
	wanted  atomic.Int64 // by those who wait

	mu     sync.Mutex    // protects looked
	looked chan struct{} // closed by the next look
}

// init looks for the first time. floor is Options.FloorBytes.
func (s *space) init(c *cache.Cache, floor int64) error {
	_, size, err := c.Free()
	if err != nil {
		return err
	}
	s.cache, s.size, s.floor = c, size, floor
	if floor == 0 {
		s.floor = min(size/floorPart, floorMost)
	}
	s.reserve = min((size-s.floor)/reservePart, reserveMost)
	s.looked = make(chan struct{})
	return s.look()
}

// look asks the volume.
func (s *space) look() error {
	free, _, err := s.cache.Free()
	if err != nil {
		return err
	}
	s.left.Store(free - s.floor)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.looked)
	s.looked = make(chan struct{})
	return nil
}

// next returns what the next look closes.
func (s *space) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked
}

// room returns what is left; it is below zero when the floor is passed.
func (s *space) room() int64 { return s.left.Load() }

// lack returns what has to be freed for those who wait and for the reserve to be
// whole again; 0 while nobody waits and most of it is there.
func (s *space) lack() int64 {
	left, wanted := s.room(), s.wanted.Load()
	if wanted == 0 && left >= s.reserve/2 {
		return 0
	}
	return max(0, s.reserve+wanted-left)
}

// take takes n bytes if there are as many.
func (s *space) take(n int64) bool {
	for {
		left := s.left.Load()
		if left < n {
			return false
		}
		if s.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

// takeSpace takes room on the volume for content of an inode. While there is none
// clean content is evicted and the caller waits for it; at last it is ENOSPC.
// No lock is held.
func (f *FS) takeSpace(c caller, ino index.Ino, n int64) error {
	if f.space.take(n) {
		return nil
	}
	if n > f.space.size-f.space.floor {
		return syscall.ENOSPC
	}
	f.space.wanted.Add(n)
	defer f.space.wanted.Add(-n)
	return f.store(c, "find room on the disk for", ino, func(ctx context.Context) error {
		late := time.NewTimer(cmp.Or(f.opts.spaceWait, spaceWait))
		defer late.Stop()
		for {
			next := f.space.next()
			if f.space.take(n) {
				return nil
			}
			f.evictSoon()
			select {
			case <-next:
			case <-late.C:
				return syscall.ENOSPC
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// takeSpaceNow takes room if there is any, for content that can do without.
func (f *FS) takeSpaceNow(n int64) bool {
	if f.space.take(n) {
		return true
	}
	f.evictSoon()
	return false
}

// evictSoon has clean content evicted without waiting for the time of it.
func (f *FS) evictSoon() {
	select {
	case f.evictNow <- struct{}{}:
	default: // it is asked for already
	}
}
