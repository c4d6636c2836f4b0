package object_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
	"berth/fusefs/object/storetest"
)

func TestWatchKeepsTheContract(t *testing.T) {
	storetest.All(t, storetest.Limits{}, func(t *testing.T) object.Store {
		w := object.NewWatch(object.WithDeadline(new(mem.Store), object.Deadlines{}), func() {})
		t.Cleanup(w.Close)
		return w
	})
}

// A change whose answer is lost ends when the store is back, long before its
// deadline; one that waits while the store answers others goes on.
func TestWatchEndsLostChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := new(mem.Store)
		back := make(chan struct{}, 1)
		w := object.NewWatch(object.WithDeadline(inner, object.NewDeadlines()), func() { back <- struct{}{} })
		defer w.Close()
		put := func() error {
			_, err := w.Put(context.Background(), "a", strings.NewReader("x"), 1, object.PutOptions{})
			return err
		}
		heal := inner.Inject(mem.Fault{Hang: true})
		ended := make(chan error, 1)
		begun := time.Now()
		go func() { ended <- put() }()
		time.Sleep(12 * time.Second)
		if since, cause := w.Away(); since.IsZero() || !errors.Is(cause, berth.ErrUnavailable) {
			t.Errorf("a hung store: away since %v, %v", since, cause)
		}
		heal()
		err := <-ended
		if took := time.Since(begun); !errors.Is(err, berth.ErrUnavailable) || took > 17*time.Second {
			t.Errorf("the lost change: %v after %v", err, took)
		}
		<-back
		if since, _ := w.Away(); !since.IsZero() || !w.Await(context.Background(), time.Second) {
			t.Error("the store is back and counts as away")
		}
		slow := inner.Inject(mem.Fault{Op: mem.OpPut, Delay: 20 * time.Second, Times: 1})
		defer slow()
		if err := put(); err != nil {
			t.Errorf("a slow change of a store that answers: %v", err)
		}
	})
}

// A refused HEAD says nothing of expired credentials, a List does.
func TestWatchTellsExpiredCredentials(t *testing.T) {
	inner := new(mem.Store)
	w := object.NewWatch(object.WithDeadline(inner, object.NewDeadlines()), func() {})
	defer w.Close()
	defer inner.Inject(mem.Fault{Op: mem.OpHead, Err: fs.ErrPermission})()
	if _, err := w.Head(t.Context(), "a"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("no permission: got %v", err)
	}
	defer inner.Inject(mem.Fault{Op: mem.OpList, Err: berth.ErrUnavailable})()
	if _, err := w.Head(t.Context(), "a"); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("expired credentials: got %v", err)
	}
}
