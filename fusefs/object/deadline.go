package object

import (
	"context"
	"fmt"
	"io"
	"time"

	"berth"
)

// Deadlines bound how long a store may take. Zero fields mean the defaults.
type Deadlines struct {
	Answer time.Duration // for an answer without a body; default 30 s
	Again  time.Duration // after which a question that changes nothing is asked once more; default 5 s
	Stall  time.Duration // for a body that makes no progress; default 30 s
	Rate   int64         // bytes per second that a body must reach on the whole; default 128 KiB
}

// NewDeadlines returns the defaults.
func NewDeadlines() Deadlines {
	return Deadlines{Answer: 30 * time.Second, Again: 5 * time.Second, Stall: 30 * time.Second, Rate: 128 << 10}
}

// WithDeadline returns a Store whose every call ends: an answer must come within
// Answer, a body must move at least every Stall and be through in Answer plus
// its size at Rate. What took too long is an error matching berth.ErrUnavailable
// that says what was waited for. Head, List and Get are asked again and again
// meanwhile, so that they go on soon when a store that hung is back. A Store that
// has deadlines already is returned as it is.
func WithDeadline(s Store, d Deadlines) Store {
	if s, ok := s.(*deadlineStore); ok {
		return s
	}
	def := NewDeadlines()
	if d.Answer <= 0 {
		d.Answer = def.Answer
	}
	if d.Again <= 0 {
		d.Again = def.Again
	}
	if d.Stall <= 0 {
		d.Stall = def.Stall
	}
	if d.Rate <= 0 {
		d.Rate = def.Rate
	}
	return &deadlineStore{s, d}
}

type deadlineStore struct {
	s Store
	d Deadlines
}

// errTooSlow is the cause of a context that a deadline ended.
func errTooSlow(what string, after time.Duration) error {
	return fmt.Errorf("%w: %s for %s", berth.ErrUnavailable, what, after)
}

// answer returns a context for a call without a body.
func (s *deadlineStore) answer(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.d.Answer, errTooSlow("no answer", s.d.Answer))
}

// total is how long a body of the size may take.
func (s *deadlineStore) total(size int64) time.Duration {
	return s.d.Answer + time.Duration(float64(size)/float64(s.d.Rate)*float64(time.Second))
}

func (s *deadlineStore) Head(ctx context.Context, key string) (Info, error) {
	ctx, cancel := s.answer(ctx)
	defer cancel()
	return askAgain(ctx, s.d.Again, func(ctx context.Context) (Info, error) { return s.s.Head(ctx, key) }, func(Info) {})
}

func (s *deadlineStore) Delete(ctx context.Context, key, ifMatch string) error {
	ctx, cancel := s.answer(ctx)
	defer cancel()
	return s.s.Delete(ctx, key, ifMatch)
}

func (s *deadlineStore) List(ctx context.Context, o ListOptions) (Page, error) {
	ctx, cancel := s.answer(ctx)
	defer cancel()
	return askAgain(ctx, s.d.Again, func(ctx context.Context) (Page, error) { return s.s.List(ctx, o) }, func(Page) {})
}

// Copy may move up to 5 GiB on the store's side before the answer comes, of a
// size that is not known here.
func (s *deadlineStore) Copy(ctx context.Context, dst, src string, o CopyOptions) (Info, error) {
	limit := 10 * s.d.Answer
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooSlow("no answer", limit))
	defer cancel()
	return s.s.Copy(ctx, dst, src, o)
}

func (s *deadlineStore) Put(ctx context.Context, key string, body io.ReaderAt, size int64, o PutOptions) (Info, error) {
	limit := s.total(size)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooSlow("the body was not taken", limit))
	defer cancel()
	ctx, w := watch(ctx, s.d.Stall)
	defer w.stop()
	return s.s.Put(ctx, key, &watchedBody{body, w, size}, size, o)
}

func (s *deadlineStore) Get(ctx context.Context, key string, o GetOptions) (io.ReadCloser, Info, error) {
	ctx, w := watch(ctx, s.d.Answer)
	got, err := askAgain(ctx, s.d.Again, func(ctx context.Context) (opened, error) {
		body, info, err := s.s.Get(ctx, key, o)
		return opened{body, info}, err
	}, func(late opened) { late.body.Close() })
	if err != nil {
		w.stop()
		return nil, Info{}, err
	}
	w.limit = s.d.Stall
	w.progress()
	return &watchedReader{got.body, w}, got.info, nil
}

// opened is an answer to Get.
type opened struct {
	body io.ReadCloser
	info Info
}

// A watchdog ends a context when nothing was reported for its limit.
type watchdog struct {
	limit  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func watch(ctx context.Context, limit time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{limit: limit, cancel: cancel}
	w.timer = time.AfterFunc(limit, func() { cancel(errTooSlow("no progress", limit)) })
	return ctx, w
}

func (w *watchdog) progress() { w.timer.Reset(w.limit) }
func (w *watchdog) pause()    { w.timer.Stop() }

func (w *watchdog) stop() {
	w.timer.Stop()
	w.cancel(context.Canceled)
}

// watchedBody reports progress whenever the store takes a piece of the body.
// Behind the last byte the store may think for as long as the whole Put may
// take: joining the parts of a large object takes its time.
type watchedBody struct {
	body io.ReaderAt
	w    *watchdog
	size int64
}

func (b *watchedBody) ReadAt(p []byte, off int64) (int, error) {
	n, err := b.body.ReadAt(p, off)
	if off+int64(n) >= b.size {
		b.w.pause()
	} else {
		b.w.progress()
	}
	return n, err
}

// watchedReader keeps the watchdog awake only while a Read waits: a caller who
// pauses between reads is no stalled store.
type watchedReader struct {
	io.ReadCloser
	w *watchdog
}

func (r *watchedReader) Read(p []byte) (int, error) {
	r.w.progress()
	n, err := r.ReadCloser.Read(p)
	r.w.pause()
	return n, err
}

func (r *watchedReader) Close() error {
	err := r.ReadCloser.Close()
	r.w.stop()
	return err
}
