package fusefs

import (
	"sync"
	"time"

	"berth"
	"berth/fusefs/cache"
	"berth/fusefs/index"
)

// settleAfter is how long a file rests after its last writer before it is settled:
// many then settle in one commit, and one that is opened again meanwhile in none.
const settleAfter = 5 * time.Millisecond

// settleMost is how many files one commit settles.
const settleMost = 128

// A settleQueue has the files that nobody has open for writing any more.
type settleQueue struct {
	more chan struct{} // there are some

	mu    sync.Mutex // protects files
	files []*openFile
}

func (q *settleQueue) init() { q.more = make(chan struct{}, 1) }

func (q *settleQueue) add(o *openFile) {
	q.mu.Lock()
	q.files = append(q.files, o)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *settleQueue) take() []*openFile {
	q.mu.Lock()
	defer q.mu.Unlock()
	files := q.files
	q.files = nil
	return files
}

// settleSoonLocked has a file settled that lost its last writer.
func (f *FS) settleSoonLocked(o *openFile) {
	if !o.pace.waits {
		o.pace.waits = true
		f.settles.add(o)
	}
}

// settleLoop settles what waits for it, until the end.
func (f *FS) settleLoop() error {
	rest := time.NewTimer(settleAfter)
	defer rest.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return nil // Close settles all
		case <-f.settles.more:
		}
		rest.Reset(settleAfter)
		select {
		case <-f.ctx.Done():
			return nil
		case <-rest.C:
		}
		f.settleWaiting()
	}
}

// settleWaiting settles all that waits. A file that is being worked on waits on.
func (f *FS) settleWaiting() {
	for files := f.settles.take(); len(files) > 0; {
		some := files[:min(len(files), settleMost)]
		files = files[len(some):]
		f.settleTogether(some)
	}
}

// A resting is a locked file that nobody can write to.
type resting struct {
	*openFile
	stat cache.Stat
}

// settleTogether settles some files in one commit. It holds the locks of several
// files, which nobody else does, and waits for none of them.
func (f *FS) settleTogether(files []*openFile) {
	var rest []resting
	for _, o := range files {
		if !o.mu.TryLock() {
			f.settles.add(o)
			continue
		}
		o.pace.waits = false
		if o.marked && o.writers == 0 {
			if st, ok := f.restsLocked(o); ok {
				rest = append(rest, resting{o, st})
				continue
			}
			f.settleLaterLocked(o)
		}
		o.mu.Unlock()
	}
	if len(rest) == 0 {
		return
	}
	err := f.update(func(t *txn) error {
		for _, r := range rest {
			if err := t.settle(r); err != nil {
				return err
			}
		}
		return nil
	})
	for _, r := range rest {
		if err == nil {
			f.endMarkLocked(r.openFile)
		} else {
			f.settleLocked(r.openFile) // by itself: one of them is at fault
		}
		r.mu.Unlock()
	}
}

// restsLocked says whether nobody can write to a file any more, and what it is
// then.
func (f *FS) restsLocked(o *openFile) (cache.Stat, bool) {
	if o.w != nil {
		o.w.Close()
		o.w = nil
	}
	settled, err := f.settledLocked(o)
	if err != nil {
		f.log.Error("Cannot find out whether a file is still written to", "inode", o.ino, "cause", err)
	}
	if err != nil || !settled {
		return cache.Stat{}, false
	}
	st, err := f.statLocked(o)
	if err != nil {
		f.log.Error("Cannot settle a file", "inode", o.ino, "cause", err)
	}
	return st, err == nil
}

// settle notes what has become of a file that was open for writing.
func (t *txn) settle(r resting) error {
	changed := changedSince(r.base, r.stat)
	ok, _ := t.f.orphans.alter(r.ino, func(n *index.Inode) error {
		if changed {
			adoptStat(n, r.stat)
		}
		return nil
	})
	switch {
	case ok:
		t.f.db.Resize(r.ino, r.stat.Size)
		return nil // it goes with its last user
	case !changed && !t.f.cache.Blind():
		t.ClearOpen(r.ino)
		return nil
	}
	return t.content(r.ino, r.stat, sameContent(r.stat, r.synced), nil)
}

// content makes what the content file of an inode holds a new generation. With a
// mark the file stays open and the mark replaces the one before. synced says that
// it is on the disk.
func (t *txn) content(ino index.Ino, st cache.Stat, synced bool, mark *index.OpenMark) error {
	t.now = st.Ctime // the change is as old as the writing, not as its being noticed
	n, err := t.inode(ino)
	if err != nil { // unlinked meanwhile, with the attributes from before
		t.ClearOpen(ino)
		_, err := t.f.orphans.alter(ino, func(n *index.Inode) error { adoptStat(n, st); return nil })
		return err
	}
	adoptStat(n, st)
	n.Gen++
	n.Stamp = t.stamp()
	if mark == nil {
		t.ClearOpen(ino)
		if err := t.noteUnsynced(ino, synced); err != nil {
			return err
		}
	} else {
		t.MarkOpen(ino, *mark)
	}
	t.enqueue(ino)
	return t.changed(berth.OpWrite, n)
}
