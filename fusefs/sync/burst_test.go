package sync

import (
	"context"
	"testing"
	"time"

	"berth/fusefs/index"
	"berth/fusefs/object/mem"
)

// A burstRig is a scheduler with a clock of its own.
type burstRig struct {
	*scheduler
	t   *testing.T
	now time.Time
}

func newBurstRig(t *testing.T) *burstRig {
	r := &burstRig{t: t, now: time.Now()}
	r.scheduler = newScheduler(newWorld(t, &mem.Store{}, nil).db, func() time.Time { return r.now })
	return r
}

func (r *burstRig) change(ino index.Ino) {
	r.touch()
	r.kick(index.FirstIno+ino, 0)
}

// taken takes all that there is to take.
func (r *burstRig) taken() (n int) {
	for it, _ := r.take(); it != nil; it, _ = r.take() {
		n++
	}
	return n
}

// TestBurstHoldsUploadsBack keeps changing files: uploads wait for the end of
// it, or for somebody who waits for them.
func TestBurstHoldsUploadsBack(t *testing.T) {
	r := newBurstRig(t)
	for ino := range index.Ino(8) {
		r.change(ino)
	}
	equal(t, "uploads in a burst", r.taken(), 0)
	calm := r.hurry()
	equal(t, "uploads while somebody waits", r.taken(), 8)
	calm()
	r.change(9)
	equal(t, "more in the burst", r.taken(), 0)
	r.now = r.now.Add(burstLength)
	equal(t, "more after it", r.taken(), 1)
}

// TestUseGoesOnWithBurst reads what was written: uploads wait for that too, but not
// for use that follows no change.
func TestUseGoesOnWithBurst(t *testing.T) {
	r := newBurstRig(t)
	use := func() {
		for range 5 {
			r.now = r.now.Add(burstLength / 2)
			r.burst.used.Store(r.now.UnixNano())
			r.taken()
		}
	}
	r.change(1)
	use()
	r.kick(index.FirstIno+2, 0)
	equal(t, "uploads while files are used", r.taken(), 0)
	r.now = r.now.Add(burstLength)
	equal(t, "uploads after it", r.taken(), 2)
	r.now = r.now.Add(10 * burstLength)
	use()
	r.kick(index.FirstIno+3, 0)
	equal(t, "uploads while files are used without a change", r.taken(), 1)
}

// TestLongBurst changes files without a pause for longer than the bucket waits.
func TestLongBurst(t *testing.T) {
	r := newBurstRig(t)
	for begun := r.now; r.now.Sub(begun) < burstMost; r.now = r.now.Add(burstLength / 2) {
		r.change(index.Ino(r.now.Sub(begun) / burstLength))
		equal(t, "uploads in a burst", r.taken(), 0)
	}
	r.change(0)
	equal(t, "uploads beside a long burst", r.taken(), burstUploads)
	equal(t, "more", r.taken(), 0)
}

// TestBurstOfRemovals removes what has not been uploaded: nothing is left to do.
func TestBurstOfRemovals(t *testing.T) {
	r := newBurstRig(t)
	for ino := range index.Ino(8) {
		r.change(ino)
	}
	for ino := range index.Ino(7) {
		r.drop(index.FirstIno + ino)
	}
	r.now = r.now.Add(burstLength)
	equal(t, "uploads", r.taken(), 1)
}

// TestLullEndsWithFlush lets a flush begin in the middle of a burst.
func TestLullEndsWithFlush(t *testing.T) {
	r := newBurstRig(t)
	r.change(1)
	over := make(chan struct{})
	go func() {
		r.lull(context.Background())
		close(over)
	}()
	defer r.hurry()()
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		t.Fatal("the lull goes on")
	}
}
