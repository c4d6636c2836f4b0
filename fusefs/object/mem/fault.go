package mem

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth"
)

// An Op is one kind of call to the store.
type Op string

// The kinds of call. OpRead is one Read of the body of a Get.
const (
	OpHead    Op = "head"
	OpGet     Op = "get"
	OpRead    Op = "read"
	OpPut     Op = "put"
	OpCopy    Op = "copy"
	OpCompose Op = "compose"
	OpDelete  Op = "delete"
	OpList    Op = "list"
)

// A Fault changes what calls do. Its fields are set before Inject.
type Fault struct {
	Op     Op            // "" = every kind
	Prefix string        // of the key (for OpCopy the destination); "" = every key
	Times  int           // how many calls it hits; 0 = all until it is removed
	Delay  time.Duration // before anything else
	Err    error         // returned instead of doing the call; wrap the sentinel you mean
	Lost   bool          // the call is done, but its answer is lost (berth.ErrUnavailable)
	Hang   bool          // the call ends only with its context

	hits int
}

// Inject adds a fault and returns the function that removes it again. Of
// several that match a call the one added first acts.
func (s *Store) Inject(f Fault) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &f
	s.faults = append(s.faults, p)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, other := range s.faults {
			if other == p {
				s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
				return
			}
		}
	}
}

// Calls returns how many calls of the kind were made so far, whatever came of them.
func (s *Store) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// faultLocked counts the call and returns a copy of the fault that hits it.
func (s *Store) faultLocked(op Op, key string) Fault {
	if s.calls == nil {
		s.calls = make(map[Op]int)
	}
	s.calls[op]++
	for _, f := range s.faults {
		if f.Op != "" && f.Op != op || !strings.HasPrefix(key, f.Prefix) || f.Times > 0 && f.hits >= f.Times {
			continue
		}
		f.hits++
		return *f
	}
	return Fault{}
}

// call does one call: the fault that hits it, then do under the lock.
func (s *Store) call(ctx context.Context, op Op, key string, do func() error) error {
	s.mu.Lock()
	f := s.faultLocked(op, key)
	s.mu.Unlock()

	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if f.Hang {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return ended(ctx, op, key)
	}
	if f.Err != nil {
		return fmt.Errorf("cannot %s object %q: %w", op, key, f.Err)
	}
	s.mu.Lock()
	err := do()
	s.mu.Unlock()
	if err == nil && f.Lost {
		return fmt.Errorf("cannot %s object %q: the answer was lost: %w", op, key, berth.ErrUnavailable)
	}
	return err
}

// ended is the error of a call whose context is over: a deadline means that the
// store was too slow, anything else is the caller's own wish.
func ended(ctx context.Context, op Op, key string) error {
	err := fmt.Errorf("cannot %s object %q: %w", op, key, context.Cause(ctx))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, berth.ErrUnavailable) {
		return fmt.Errorf("%w (%w)", err, berth.ErrUnavailable)
	}
	return err
}
