package object_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
	"berth/fusefs/object/storetest"
)

func TestContractWithDeadline(t *testing.T) {
	storetest.All(t, storetest.Limits{}, func(*testing.T) object.Store {
		return object.WithDeadline(new(mem.Store), object.Deadlines{})
	})
}

// limits are those of the tests below; time is not real there.
func limits() object.Deadlines {
	return object.Deadlines{Answer: 10 * time.Second, Stall: 5 * time.Second, Rate: 1 << 10}
}

func TestEveryCallEnds(t *testing.T) {
	calls := map[mem.Op]func(context.Context, object.Store) error{
		mem.OpHead: func(ctx context.Context, s object.Store) error {
			_, err := s.Head(ctx, "k")
			return err
		},
		mem.OpGet: func(ctx context.Context, s object.Store) error {
			_, _, err := s.Get(ctx, "k", object.GetOptions{})
			return err
		},
		mem.OpRead: func(ctx context.Context, s object.Store) error {
			r, _, err := s.Get(ctx, "k", object.GetOptions{})
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.ReadAll(r)
			return err
		},
		mem.OpPut: func(ctx context.Context, s object.Store) error {
			_, err := s.Put(ctx, "k", strings.NewReader("x"), 1, object.PutOptions{})
			return err
		},
		mem.OpCopy: func(ctx context.Context, s object.Store) error {
			_, err := s.Copy(ctx, "copy", "k", object.CopyOptions{})
			return err
		},
		mem.OpDelete: func(ctx context.Context, s object.Store) error { return s.Delete(ctx, "k", "") },
		mem.OpList: func(ctx context.Context, s object.Store) error {
			_, err := s.List(ctx, object.ListOptions{Prefix: "k"})
			return err
		},
	}
	for op, call := range calls {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := new(mem.Store)
				s := object.WithDeadline(inner, limits())
				if _, err := s.Put(t.Context(), "k", strings.NewReader("x"), 1, object.PutOptions{}); err != nil {
					t.Fatal(err)
				}
				inner.Inject(mem.Fault{Op: op, Hang: true})
				start := time.Now()
				err := call(t.Context(), s)
				if !errors.Is(err, berth.ErrUnavailable) || errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want one that is unavailable and not the caller's wish", err)
				}
				if waited := time.Since(start); waited < 5*time.Second || waited > 100*time.Second {
					t.Errorf("it ended after %s", waited)
				}
			})
		})
	}
}

// slowReader gives one byte of its body after each pause.
type slowReader struct {
	object.Store
	pause time.Duration
	count int
}

func (s slowReader) Get(ctx context.Context, key string, o object.GetOptions) (io.ReadCloser, object.Info, error) {
	return io.NopCloser(&slowBody{ctx, s.pause, s.count}), object.Info{Key: key}, nil
}

type slowBody struct {
	ctx   context.Context
	pause time.Duration
	left  int
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	select {
	case <-time.After(b.pause):
	case <-b.ctx.Done():
		return 0, context.Cause(b.ctx)
	}
	b.left--
	p[0] = 'x'
	return 1, nil
}

// TestGetProgress proves that a slow body goes on as long as it moves, also
// when its reader takes a rest, and that a stalled one ends.
func TestGetProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := object.WithDeadline(slowReader{pause: 4 * time.Second, count: 100}, limits())
		r, _, err := s.Get(t.Context(), "k", object.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var one [1]byte
		if _, err := r.Read(one[:]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		rest, err := io.ReadAll(r)
		if err != nil || len(rest) != 99 {
			t.Errorf("got %d bytes and %v, want 99", len(rest), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}

		s = object.WithDeadline(slowReader{pause: 6 * time.Second, count: 100}, limits())
		if r, _, err = s.Get(t.Context(), "k", object.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if rest, err = io.ReadAll(r); !errors.Is(err, berth.ErrUnavailable) {
			t.Errorf("stalled: got %d bytes and %v, want unavailable", len(rest), err)
		}
		r.Close()
	})
}

// takingStore reads the body in pieces with pauses, and thinks after the last.
type takingStore struct {
	object.Store
	pause, think time.Duration
}

func (s takingStore) Put(ctx context.Context, key string, body io.ReaderAt, size int64, _ object.PutOptions) (object.Info, error) {
	for off := int64(0); off < size; off += 1 << 10 {
		if err := rest(ctx, s.pause); err != nil {
			return object.Info{}, err
		}
		if _, err := body.ReadAt(make([]byte, 1<<10), off); err != nil {
			return object.Info{}, err
		}
	}
	return object.Info{Key: key}, rest(ctx, s.think)
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestPutProgress(t *testing.T) {
	const size = 64 << 10 // 64 s at the rate of the limits, 74 s in all
	for _, c := range []struct {
		name         string
		pause, think time.Duration
		ok           bool
	}{
		{"steady", time.Second, time.Second, true},
		{"thinks long at the end", 500 * time.Millisecond, 30 * time.Second, true},
		{"stalls", 6 * time.Second, 0, false},
		{"too slow on the whole", 2 * time.Second, 0, false},
		{"never answers", 0, time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := object.WithDeadline(takingStore{pause: c.pause, think: c.think}, limits())
				_, err := s.Put(t.Context(), "k", strings.NewReader(strings.Repeat("x", size)), size, object.PutOptions{})
				if c.ok && err != nil || !c.ok && !errors.Is(err, berth.ErrUnavailable) {
					t.Errorf("got %v, want success = %v", err, c.ok)
				}
			})
		})
	}
}

// TestAskedAgain has a store lose questions: what only asks is answered soon when
// the store is back, long before the deadline.
func TestAskedAgain(t *testing.T) {
	calls := map[mem.Op]func(context.Context, object.Store) error{
		mem.OpHead: func(ctx context.Context, s object.Store) error { _, err := s.Head(ctx, "k"); return err },
		mem.OpGet: func(ctx context.Context, s object.Store) error {
			r, _, err := s.Get(ctx, "k", object.GetOptions{})
			if err != nil {
				return err
			}
			data, err := io.ReadAll(r)
			if string(data) != "x" {
				t.Errorf("read %q", data)
			}
			return errors.Join(err, r.Close())
		},
		mem.OpList: func(ctx context.Context, s object.Store) error {
			_, err := s.List(ctx, object.ListOptions{Prefix: "k"})
			return err
		},
	}
	for op, call := range calls {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := new(mem.Store)
				s := object.WithDeadline(inner, object.NewDeadlines())
				if _, err := s.Put(t.Context(), "k", strings.NewReader("x"), 1, object.PutOptions{}); err != nil {
					t.Fatal(err)
				}
				inner.Inject(mem.Fault{Op: op, Hang: true, Times: 2})
				start := time.Now()
				if err := call(t.Context(), s); err != nil {
					t.Error(err)
				}
				if waited := time.Since(start); waited != 10*time.Second {
					t.Errorf("it ended after %s, want 10 s", waited)
				}
			})
		})
	}
}
