package fusefs

import (
	"time"

	"berth"
	"berth/fusefs/cache"
	"berth/fusefs/index"
)

// How open files are looked at.
const (
	watchEvery  = 500 * time.Millisecond
	syncEvery   = 5 * time.Second  // for content that took the place of other content
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
}

func newPace(now time.Time) pace { return pace{seenAt: now, snapAt: now} }

// settleLocked ends the time in which a file may be written to, if nobody has a
// writable descriptor or mapping of it any more. Otherwise it stays marked and
// is tried again: at first soon, since the kernel lets go of a backing file a
// little after it tells of the release.
func (f *FS) settleLocked(o *openFile) {
	if o.w != nil {
		o.w.Close()
		o.w = nil
	}
	settled, err := f.settledLocked(o)
	if err != nil {
		f.log.Error("Cannot find out whether a file is still written to", "inode", o.ino, "cause", err)
	}
	if settled {
		if err = f.finishLocked(o); err != nil {
			f.log.Error("Cannot settle a file", "inode", o.ino, "cause", err)
		}
	}
	if !settled || err != nil {
		o.pace.settleWait = min(max(4*o.pace.settleWait, time.Millisecond), watchEvery)
		o.pace.settleAt = time.Now().Add(o.pace.settleWait)
		f.opens.wake(o.pace.settleWait)
		return
	}
	if o.pace.snapped {
		if err := f.cache.RemoveSnapshots(o.ino, snapAll); err != nil {
			f.log.Warn("Cannot remove a snapshot", "inode", o.ino, "cause", err)
		}
	}
	o.marked, o.outlived = false, false
	f.endCount(o.ino)
	f.opens.meter(o)
	f.thaw(o.ino)
	o.pace = pace{}
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

// finishLocked writes what has become of a settled file to the index.
func (f *FS) finishLocked(o *openFile) error {
	st, err := f.statLocked(o)
	if err != nil {
		return err
	}
	ok, _ := f.orphans.alter(o.ino, func(n *index.Inode) error {
		if changedSince(o.base, st) {
			adoptStat(n, st)
		}
		return nil
	})
	if ok {
		f.db.Resize(o.ino, st.Size)
		return nil // it goes with its last user
	}
	if !changedSince(o.base, st) && !f.cache.Blind() {
		return f.db.Update(func(b *index.Batch) error {
			b.ClearOpen(o.ino)
			return nil
		})
	}
	return f.commitContent(o.ino, st, nil)
}

// commitContent makes what the content file holds a new generation. With a mark
// the file stays open and the mark replaces the one before.
func (f *FS) commitContent(ino index.Ino, st cache.Stat, mark *index.OpenMark) error {
	return f.update(func(t *txn) error {
		t.now = st.Ctime // the change is as old as the writing, not as its being noticed
		n, err := t.inode(ino)
		if err != nil { // unlinked meanwhile, with the attributes from before
			t.ClearOpen(ino)
			_, err := f.orphans.alter(ino, func(n *index.Inode) error { adoptStat(n, st); return nil })
			return err
		}
		adoptStat(n, st)
		n.Gen++
		n.Stamp = t.stamp()
		if mark == nil {
			t.ClearOpen(ino)
		} else {
			t.MarkOpen(ino, *mark)
		}
		t.enqueue(ino)
		return t.changed(berth.OpWrite, n)
	})
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
