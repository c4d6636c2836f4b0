package sync

import (
	"log/slog"
	"testing"
	"time"

	"berth/fusefs/index"
	"berth/fusefs/object/mem"
)

func openIndex(t *testing.T, dir string) *index.DB {
	t.Helper()
	db, err := index.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestClock(t *testing.T) {
	dir := t.TempDir()
	db := openIndex(t, dir)
	wall := time.UnixMilli(1_000_000)
	now := func() time.Time { return wall }
	c, err := newClock(db, "gw1", now)
	if err != nil {
		t.Fatal(err)
	}
	last := c.Now()
	later := func(what string) {
		t.Helper()
		next := c.Now()
		if next.Compare(last) <= 0 {
			t.Errorf("%s: stamp %v is not later than %v", what, next, last)
		}
		last = next
	}
	later("at the same time")
	for range 1 << 17 {
		c.Now()
	}
	later("after the counter ran over")
	wall = wall.Add(time.Second)
	later("a second later")
	if got := last.Milli(); got != wall.UnixMilli() {
		t.Errorf("reading: got %d, want the wall clock %d", got, wall.UnixMilli())
	}
	c.Observe(index.Stamp{Time: uint64(wall.UnixMilli()+2000) << 16, Gateway: "other"})
	later("after a stamp from ahead")
	if got, want := last.Milli(), wall.UnixMilli()+2000; got != want {
		t.Errorf("after a stamp from ahead: got %d, want %d", got, want)
	}
	c.Observe(index.Stamp{Time: 1 << 63, Gateway: "mad"})
	later("after a stamp from far ahead")
	if got, want := last.Milli(), wall.UnixMilli()+maxSkew; got != want {
		t.Errorf("after a stamp from far ahead: got %d, want it bounded to %d", got, want)
	}

	// A restart with the clock set back.
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = openIndex(t, dir)
	defer db.Close()
	wall = wall.Add(-time.Hour)
	if c, err = newClock(db, "gw1", now); err != nil {
		t.Fatal(err)
	}
	later("after a restart and with the clock set back")
	if ahead := last.Milli() - wall.Add(time.Hour).UnixMilli(); ahead > maxSkew+2*clockLease {
		t.Errorf("after a restart the clock is %d ms ahead", ahead)
	}
}

func TestClockInsideUpdate(t *testing.T) {
	db := openIndex(t, t.TempDir())
	defer db.Close()
	c, err := newClock(db, "gw1", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(*index.Batch) error { c.Now(); return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestBadGateway(t *testing.T) {
	db := openIndex(t, t.TempDir())
	defer db.Close()
	for _, gateway := range []string{"", "UPPER", "a-b", "abcdefghijklmnopq"} {
		if _, err := newClock(db, gateway, time.Now); err == nil {
			t.Errorf("gateway %q: got no error", gateway)
		}
	}
}

// TestSkewIsReported has a store whose clock is an hour ahead: the status says so,
// and what is written here still gets stamps of this machine's clock.
func TestSkewIsReported(t *testing.T) {
	store := &mem.Store{Now: func() time.Time { return time.Now().Add(time.Hour) }}
	w := newWorld(t, store, nil)
	w.create("f", "content")
	w.flush()
	st, err := w.sync.Status()
	if err != nil || (st.Skew-time.Hour).Abs() > 5*time.Second {
		t.Errorf("the store is %v ahead, %v; want an hour", st.Skew, err)
	}
	info, err := store.Head(t.Context(), testTree+"f")
	if err != nil {
		t.Fatal(err)
	}
	stamp := decodeAttributes(info, false).own()
	if ahead := time.UnixMilli(stamp.Milli()).Sub(time.Now()); ahead > maxSkew*time.Millisecond {
		t.Errorf("the stamp is %v ahead", ahead)
	}
}
