package sync

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"berth"
	"berth/fusefs/index"
)

// How long a failure that was long in coming answers those who ask for the same.
// The kernel makes who wants to change a directory, or a file's size, stand in
// line uninterruptibly: without it each of a line would wait for a hung store
// anew, one after the other.
const (
	longFailure   = 500 * time.Millisecond // what counts as long
	repeatFailure = 2 * time.Second
)

// flights makes callers who want the same work done at the same time share it.
type flights struct {
	running sync.WaitGroup

	// together makes the deadline of all who wait that of the first: for work that
	// takes long only when the store does.
	together bool

	mu    sync.Mutex // protects the field below
	calls map[index.Ino]*flight
}

// A flight is work for one inode, under way or failed a moment ago.
type flight struct {
	begun time.Time
	done  chan struct{}
	err   error // valid when done is closed
}

// do runs f for an inode unless it runs already, and waits for its end or the
// caller's. f gets base, not ctx, since others may wait for the same work. A
// panic of f is an error.
func (g *flights) do(ctx, base context.Context, ino index.Ino, f func(context.Context) error) error {
	g.mu.Lock()
	c := g.calls[ino]
	if c == nil {
		c = &flight{begun: time.Now(), done: make(chan struct{})}
		if g.calls == nil {
			g.calls = make(map[index.Ino]*flight)
		}
		g.calls[ino] = c
		g.running.Add(1)
		go func() {
			defer g.running.Done()
			c.err = withoutPanic(base, f)
			if errors.Is(c.err, berth.ErrUnavailable) && time.Since(c.begun) >= longFailure && base.Err() == nil {
				time.AfterFunc(repeatFailure, func() { g.forget(ino) })
			} else {
				g.forget(ino)
			}
			close(c.done)
		}()
	}
	g.mu.Unlock()
	if end, ok := ctx.Deadline(); ok && g.together {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-time.Since(c.begun)))
		defer cancel()
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *flights) forget(ino index.Ino) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.calls, ino)
}

func withoutPanic(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("BUG: panic: %v\n%s", v, debug.Stack())
		}
	}()
	return f(ctx)
}
