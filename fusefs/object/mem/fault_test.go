package mem_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

func put(t *testing.T, s object.Store, key string, o object.PutOptions) error {
	t.Helper()
	_, err := s.Put(t.Context(), key, strings.NewReader(key), int64(len(key)), o)
	return err
}

func TestFaults(t *testing.T) {
	s := new(mem.Store)
	remove := s.Inject(mem.Fault{Op: mem.OpPut, Prefix: "a/", Times: 2, Err: berth.ErrUnavailable})
	for i, want := range []error{berth.ErrUnavailable, berth.ErrUnavailable, nil} {
		if err := put(t, s, "a/x", object.PutOptions{}); !errors.Is(err, want) {
			t.Errorf("put %d: got %v, want %v", i, err, want)
		}
	}
	if err := put(t, s, "b", object.PutOptions{}); err != nil {
		t.Errorf("another prefix: %v", err)
	}
	remove()
	remove() // a second time changes nothing
	if got := s.Calls(mem.OpPut); got != 4 {
		t.Errorf("calls: got %d, want 4", got)
	}

	// A lost answer: the object is there, and the retry sees its own work.
	remove = s.Inject(mem.Fault{Op: mem.OpPut, Lost: true})
	if err := put(t, s, "lost", object.PutOptions{IfNoneMatch: true}); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("lost: got %v, want unavailable", err)
	}
	remove()
	if err := put(t, s, "lost", object.PutOptions{IfNoneMatch: true}); !errors.Is(err, object.ErrPrecondition) {
		t.Errorf("again: got %v, want a failed precondition", err)
	}

	remove = s.Inject(mem.Fault{Op: mem.OpRead, Err: berth.ErrUnavailable})
	defer remove()
	r, _, err := s.Get(t.Context(), "lost", object.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadAll(r); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("body: got %v, want unavailable", err)
	}
}

func TestLatencyAndClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Date(2026, 5, 1, 12, 0, 0, 999, time.UTC)
		s := &mem.Store{Now: func() time.Time { return now }}
		s.Inject(mem.Fault{Op: mem.OpPut, Delay: time.Minute})
		start := time.Now()
		if err := put(t, s, "k", object.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != time.Minute {
			t.Errorf("put took %s, want 1m", got)
		}
		info, err := s.Head(t.Context(), "k")
		if want := now.Truncate(time.Second); err != nil || !info.LastModified.Equal(want) {
			t.Errorf("last modified: got %s, %v; want %s", info.LastModified, err, want)
		}
	})
}
