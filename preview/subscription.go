package preview

import (
	"context"
)

// A Subscription is one reader's position in the feed. It holds no goroutine
// and no queue and needs no closing. It is used by one goroutine.
type Subscription struct {
	feed   *Feed
	filter Filter
	epoch  string
	last   uint64 // the number of the last event looked at
	gap    bool   // the reader asked for a position that no feed could have given
}

// Subscribe returns a subscription to what comes after the event with the given
// id, or after now if it is empty. If what follows that event is not known any
// more, the first event is a reset.
func (f *Feed) Subscribe(since string, filter Filter) *Subscription {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &Subscription{feed: f, filter: filter, epoch: f.epoch, last: f.lastLocked()}
	if since == "" {
		return s
	}
	epoch, seq, err := ParseEventID(since)
	if err != nil || (epoch == f.epoch && seq > s.last) {
		s.gap = true
		return s
	}
	s.epoch, s.last = epoch, seq
	return s
}

// Position returns the id to subscribe from to go on where this subscription
// is. It moves on over events that the filter holds back, too.
func (s *Subscription) Position() string { return eventID(s.epoch, s.last) }

// Next waits for the next event that passes the filter. It fails only with the
// cause of ctx. A reset tells that events were lost; the subscription goes on
// from the present.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		if ctx.Err() != nil {
			return Event{}, context.Cause(ctx)
		}
		events, reset, wake := s.take()
		if reset != "" {
			return Event{ID: s.Position(), Reset: reset}, nil
		}
		for _, e := range events {
			s.last++
			if passed, ok := s.filter.apply(e); ok {
				return passed, nil
			}
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-wake:
		}
	}
}

// take returns a few events after the position, or why the position is lost (it
// is then moved to the present), or what to wait for.
func (s *Subscription) take() (events []Event, reset string, wake <-chan struct{}) {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case s.gap:
		reset = "gap"
	case s.epoch != f.epoch:
		reset = "restart"
	case s.last+1 < f.first:
		reset = "overflow"
	}
	if reset != "" {
		s.gap, s.epoch, s.last = false, f.epoch, f.lastLocked()
		return nil, reset, nil
	}
	rest := f.ring[s.last+1-f.first:]
	for _, e := range rest[:min(len(rest), 16)] {
		events = append(events, e.event)
	}
	return events, "", f.wake
}
