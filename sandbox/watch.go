package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"sync"
)

// ErrReset says that a subscription fell behind: ask for what is true now and
// subscribe again.
var ErrReset = errors.New("the subscription fell behind")

// maxBehind is how many changes a subscription may be behind.
const maxBehind = 1024

// feed tells subscribers of changes of machines' states. It never waits for one.
type feed struct {
	mu     sync.Mutex // protects what follows, and the fields of subscriptions
	subs   map[*StateSubscription]bool
	closed bool
}

func newFeed() *feed { return &feed{subs: map[*StateSubscription]bool{}} }

// A StateSubscription receives the states of machines from its beginning on.
// One goroutine uses it.
type StateSubscription struct {
	feed  *feed
	queue []Machine
	err   error
	fresh chan struct{} // has a token when there is something new
}

// Watch subscribes to the changes of all machines' states. Close ends it.
func (m *Manager) Watch() *StateSubscription {
	s := &StateSubscription{feed: m.feed, fresh: make(chan struct{}, 1)}
	m.feed.mu.Lock()
	defer m.feed.mu.Unlock()
	if m.feed.closed {
		s.err = fs.ErrClosed
	} else {
		m.feed.subs[s] = true
	}
	return s
}

// Next waits for changes and returns them. It fails with ErrReset when the
// subscription fell behind, with fs.ErrClosed after Close, and when ctx ends.
func (s *StateSubscription) Next(ctx context.Context) ([]Machine, error) {
	for {
		s.feed.mu.Lock()
		queue, err := s.queue, s.err
		s.queue = nil
		s.feed.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if len(queue) > 0 {
			return queue, nil
		}
		select {
		case <-s.fresh:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close ends the subscription.
func (s *StateSubscription) Close() { s.feed.end(s, fs.ErrClosed) }

func (f *feed) end(s *StateSubscription, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endLocked(s, err)
}

func (f *feed) endLocked(s *StateSubscription, err error) {
	if s.err == nil {
		s.err, s.queue = err, nil
	}
	delete(f.subs, s)
	s.wake()
}

func (s *StateSubscription) wake() {
	select {
	case s.fresh <- struct{}{}:
	default:
	}
}

func (f *feed) publish(m Machine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		if len(s.queue) >= maxBehind {
			f.endLocked(s, ErrReset)
			continue
		}
		s.queue = append(s.queue, m)
		s.wake()
	}
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for s := range f.subs {
		f.endLocked(s, fs.ErrClosed)
	}
}
