package fusefs

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"sync"

	"berth"
)

// feedSize is how many changes are kept for readers that are behind.
const feedSize = 1 << 14

// ErrReset says that changes were missed: the reader has fallen too far behind,
// or asks for those of an earlier process. It must look at everything anew and
// subscribe again.
var ErrReset = errors.New("changes were missed")

// A feed is the last changes, numbered from 1 within an epoch. Publishing never
// waits.
type feed struct {
	epoch string

	mu     sync.Mutex // protects the fields below
	ring   []berth.Change
	next   uint64        // number of the next change
	more   chan struct{} // closed at the next change, once somebody waits for it
	waited bool
	closed bool
}

func newFeed(size int) *feed {
	return &feed{epoch: rand.Text(), ring: make([]berth.Change, size), next: 1, more: make(chan struct{})}
}

// publish numbers a change and wakes the readers.
func (d *feed) publish(c berth.Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.Seq = d.next
	d.ring[c.Seq%uint64(len(d.ring))] = c
	d.next++
	if d.waited { // most changes come when nobody does
		close(d.more)
		d.more, d.waited = make(chan struct{}), false
	}
}

func (d *feed) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		close(d.more)
		d.more = make(chan struct{})
	}
}

// since returns the changes after a number; wait is closed when there may be
// more.
func (d *feed) since(seq uint64) (changes []berth.Change, wait <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	size := uint64(len(d.ring))
	switch {
	case d.closed:
		return nil, nil, errClosed
	case seq >= d.next, seq+size < d.next-1:
		return nil, nil, ErrReset
	}
	for n := seq + 1; n < d.next; n++ {
		changes = append(changes, d.ring[n%size])
	}
	d.waited = true
	return changes, d.more, nil
}

// A Subscription reads the changes in their order. It is used by one goroutine
// and needs no end.
type Subscription struct {
	feed *feed
	seq  uint64
}

// FromNow stands for the number of the newest change.
const FromNow = math.MaxUint64

// Changes returns a reader of the changes after a number of this epoch. A number
// that is no longer kept, or not yet given, makes Next return ErrReset.
func (f *FS) Changes(since uint64) *Subscription {
	if since == FromNow {
		since = f.LastChange()
	}
	return &Subscription{f.feed, since}
}

// Epoch names the run of this process whose numbers the changes have.
func (f *FS) Epoch() string { return f.feed.epoch }

// LastChange returns the number of the newest change, 0 when there is none.
func (f *FS) LastChange() uint64 {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	return f.feed.next - 1
}

// Epoch is the epoch of the numbers.
func (s *Subscription) Epoch() string { return s.feed.epoch }

// Next waits for changes and returns at least one. ErrReset ends the
// subscription.
func (s *Subscription) Next(ctx context.Context) ([]berth.Change, error) {
	for {
		changes, wait, err := s.feed.since(s.seq)
		if err != nil {
			return nil, err
		}
		if len(changes) > 0 {
			s.seq = changes[len(changes)-1].Seq
			return changes, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-wait:
		}
	}
}

// Publish takes a change that came from the bucket (sync.Hooks).
func (f *FS) Publish(c berth.Change) { f.feed.publish(c) }
