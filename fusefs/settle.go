package fusefs

import (
	"time"

	"berth/fusefs/cache"
	"berth/fusefs/index"
)

// How open files are looked at.
const (
	watchEvery  = 500 * time.Millisecond
	quietFor    = 2 * time.Second  // a file that long unchanged is snapshotted
	snapAtLeast = 60 * time.Second // and one that keeps changing so often
	copyTries   = 3                // of a copy while the file changes under it
)

// A pace says when an openFile is to be looked at again.
type pace struct {
	settleAt   time.Time // next try to settle, once there is no writer
	settleWait time.Duration
	seen       cache.Stat // as when last looked at
	seenAt     time.Time  // when it began to look so
	snapAt     time.Time  // of the last snapshot, or of the mark
	snapped    bool       // there is one
	waits      bool       // it is in the settleQueue
	told       bool       // the kernel was given its attributes to keep, when nobody could write
}

func newPace(now time.Time) pace { return pace{seenAt: now, snapAt: now} }

// settleLocked ends the time in which a file may be written to, if nobody has a
// writable descriptor or mapping of it any more. Otherwise it stays marked and
// is tried again: at first soon, since the kernel lets go of a backing file a
// little after it tells of the release.
func (f *FS) settleLocked(o *openFile) {
	st, ok := f.restsLocked(o)
	if ok {
		if err := f.update(func(t *txn) error { return t.settle(resting{o, st}) }); err != nil {
			f.log.Error("Cannot settle a file", "inode", o.ino, "cause", err)
			ok = false
		}
	}
	if !ok {
		f.settleLaterLocked(o)
		return
	}
	f.endMarkLocked(o)
}

// settleLaterLocked has a file that could not be settled tried again.
func (f *FS) settleLaterLocked(o *openFile) {
	o.pace.settleWait = min(max(4*o.pace.settleWait, time.Millisecond), watchEvery)
	o.pace.settleAt = time.Now().Add(o.pace.settleWait)
	f.opens.wake(o.pace.settleWait)
}

// endMarkLocked ends what the mark of a file was for, which has settled.
func (f *FS) endMarkLocked(o *openFile) {
	if o.pace.snapped {
		if err := f.cache.RemoveSnapshots(o.ino, snapAll); err != nil {
			f.log.Warn("Cannot remove a snapshot", "inode", o.ino, "cause", err)
		}
	}
	o.marked, o.outlived = false, false
	f.endCount(o.ino)
	f.opens.meter(o)
	f.thaw(o.ino)
	o.pace = pace{waits: o.pace.waits}
	if !o.inUseLocked() {
		f.closeLocked(o)
	}
	f.opens.put(o, 1)
}

func (f *FS) settledLocked(o *openFile) (bool, error) {
	if o.r != nil {
		return cache.SettledFile(o.r)
	}
	return f.cache.Settled(o.ino)
}

// commitContent makes what the content file holds a new generation, of a file that
// stays open if there is a mark.
func (f *FS) commitContent(ino index.Ino, st cache.Stat, mark *index.OpenMark) error {
	return f.update(func(t *txn) error { return t.content(ino, st, false, mark) })
}

// settleAll settles what can be settled when no request comes any more.
func (f *FS) settleAll() {
	for _, o := range f.opens.all() {
		o.mu.Lock()
		o.readers, o.writers = 0, 0
		if o.marked {
			f.settleLocked(o)
		} else {
			f.closeLocked(o)
		}
		o.mu.Unlock()
		f.opens.put(o, 1)
	}
}
