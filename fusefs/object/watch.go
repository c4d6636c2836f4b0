package object

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"berth"
)

// How a store that does not answer is looked after.
const (
	suspectAfter = 5 * time.Second // a call that has no answer for so long
	probeEvery   = time.Second
	probeLimit   = 3 * time.Second
	probeKey     = ".berth/probe/"
)

// A Watch is a Store that knows whether the store is away as a whole. When a call
// fails with berth.ErrUnavailable, or waits for long, it asks the store
// for something small, each second until an answer comes. Changes that were sent
// before the last question without an answer, and have not moved since, then end
// with berth.ErrUnavailable: their answers are lost, and waiting for the deadline
// would be waiting for nothing.
type Watch struct {
	s    Store
	back func() // called each time that it is back, from a goroutine of its own

	ctx    context.Context
	cancel context.CancelFunc
	probes sync.WaitGroup

	mu    sync.Mutex // protects the fields below
	calls map[*change]struct{}
	since time.Time     // when the first question was asked; zero while all is well
	away  bool          // there was no answer to it
	cause error         // of that
	again chan struct{} // closed when an answer came; nil while all is well
}

var _ Composer = (*Watch)(nil)

// NewWatch watches a store, whose calls must have deadlines. Close ends it.
func NewWatch(s Store, back func()) *Watch {
	w := &Watch{s: s, back: back, calls: make(map[*change]struct{})}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Close ends the questions. Calls go on.
func (w *Watch) Close() {
	w.mu.Lock()
	w.cancel()
	w.mu.Unlock()
	w.probes.Wait()
}

// Away returns since when the store has been away, and why; zero if it answers.
func (w *Watch) Away() (time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.away {
		return time.Time{}, nil
	}
	return w.since, w.cause
}

// Await waits until the store answers, as long as it has been away for less than a
// limit, and says whether it does.
func (w *Watch) Await(ctx context.Context, limit time.Duration) bool {
	w.mu.Lock()
	again, left := w.again, limit-time.Since(w.since)
	w.mu.Unlock()
	if again == nil {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-again:
		return ctx.Err() == nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// saw takes notice of how a call ended.
func (w *Watch) saw(ctx context.Context, err error) {
	if errors.Is(err, berth.ErrUnavailable) && (ctx.Err() == nil || errors.Is(context.Cause(ctx), berth.ErrUnavailable)) {
		w.ask(err)
	}
}

// ask begins to ask, unless that goes on.
func (w *Watch) ask(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again != nil || w.ctx.Err() != nil {
		return
	}
	w.since, w.cause, w.again = time.Now(), cause, make(chan struct{})
	w.probes.Go(w.probe)
}

func (w *Watch) probe() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for lost := (time.Time{}); ; {
		asked := time.Now()
		err := w.question(w.ctx)
		if w.ctx.Err() != nil {
			return
		}
		if !errors.Is(err, berth.ErrUnavailable) {
			w.returned(lost)
			return
		}
		lost = asked
		w.mu.Lock()
		w.away, w.cause = true, err
		w.mu.Unlock()
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			return
		}
	}
}

// question asks the store for something small. That is a List, whose refusals say
// why.
func (w *Watch) question(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeLimit, errTooSlow("no answer", probeLimit))
	defer cancel()
	_, err := w.s.List(ctx, ListOptions{Prefix: probeKey, Max: 1})
	return err
}

// returned notes that the store answers. lost is when the last question without an
// answer was asked, zero if all were answered.
func (w *Watch) returned(lost time.Time) {
	w.mu.Lock()
	for c := range w.calls {
		if time.Unix(0, c.moved.Load()).Before(lost) {
			c.cancel(errLost)
		}
	}
	close(w.again)
	was := w.away
	w.since, w.away, w.cause, w.again = time.Time{}, false, nil, nil
	w.mu.Unlock()
	if was {
		w.back()
	}
}

// errLost ends a change whose answer will not come.
var errLost = errTooSlow("the store was away and did not answer", suspectAfter)

// A change is a call that changes the bucket and has no answer yet.
type change struct {
	cancel context.CancelCauseFunc
	moved  atomic.Int64 // Unix ns, when it was sent or a part of its body was taken
}

// begin notes a change; the caller calls end with its outcome.
func (w *Watch) begin(ctx context.Context) (context.Context, *change, func(error)) {
	inner, cancel := context.WithCancelCause(ctx)
	c := &change{cancel: cancel}
	c.moved.Store(time.Now().UnixNano())
	w.mu.Lock()
	w.calls[c] = struct{}{}
	w.mu.Unlock()
	late := w.suspect()
	return inner, c, func(err error) {
		late.Stop()
		w.mu.Lock()
		delete(w.calls, c)
		w.mu.Unlock()
		cancel(context.Canceled)
		w.saw(ctx, err)
	}
}

// suspect begins to ask when a call takes long.
func (w *Watch) suspect() *time.Timer {
	return time.AfterFunc(suspectAfter, func() { w.ask(errTooSlow("no answer", suspectAfter)) })
}

// Head is the Store's. Credentials that have expired look like a lack of
// permission here, since a refused HEAD says nothing more: that is found out.
func (w *Watch) Head(ctx context.Context, key string) (Info, error) {
	defer w.suspect().Stop()
	info, err := w.s.Head(ctx, key)
	if errors.Is(err, fs.ErrPermission) {
		if cause := w.question(ctx); errors.Is(cause, berth.ErrUnavailable) {
			err = cause
		}
	}
	w.saw(ctx, err)
	return info, err
}

// Get is the Store's.
func (w *Watch) Get(ctx context.Context, key string, o GetOptions) (io.ReadCloser, Info, error) {
	defer w.suspect().Stop()
	body, info, err := w.s.Get(ctx, key, o)
	w.saw(ctx, err)
	return body, info, err
}

// List is the Store's.
func (w *Watch) List(ctx context.Context, o ListOptions) (Page, error) {
	defer w.suspect().Stop()
	page, err := w.s.List(ctx, o)
	w.saw(ctx, err)
	return page, err
}

// Put is the Store's.
func (w *Watch) Put(ctx context.Context, key string, body io.ReaderAt, size int64, o PutOptions) (Info, error) {
	inner, c, end := w.begin(ctx)
	info, err := w.s.Put(inner, key, movingBody{body, c}, size, o)
	end(err)
	return info, err
}

// Compose is the Store's, if it can.
func (w *Watch) Compose(ctx context.Context, key string, body io.ReaderAt, size int64, o ComposeOptions) (Info, error) {
	inner, c, end := w.begin(ctx)
	info, err := Compose(inner, w.s, key, movingBody{body, c}, size, o)
	end(err)
	return info, err
}

// Copy is the Store's.
func (w *Watch) Copy(ctx context.Context, dst, src string, o CopyOptions) (Info, error) {
	inner, _, end := w.begin(ctx)
	info, err := w.s.Copy(inner, dst, src, o)
	end(err)
	return info, err
}

// Delete is the Store's.
func (w *Watch) Delete(ctx context.Context, key, ifMatch string) error {
	inner, _, end := w.begin(ctx)
	err := w.s.Delete(inner, key, ifMatch)
	end(err)
	return err
}

// A movingBody tells that a part of it was taken.
type movingBody struct {
	io.ReaderAt
	c *change
}

func (b movingBody) ReadAt(p []byte, off int64) (int, error) {
	b.c.moved.Store(time.Now().UnixNano())
	return b.ReaderAt.ReadAt(p, off)
}
