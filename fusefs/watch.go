package fusefs

import (
	"os"
	"time"

	"berth/fusefs/cache"
	"berth/fusefs/index"
)

// watch looks at the open files: it settles those that could not be settled at
// their release and snapshots those that stay open.
func (f *FS) watch() error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	soon := time.NewTimer(time.Hour)
	defer soon.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return nil
		case d := <-f.opens.soon:
			soon.Reset(d)
			continue
		case <-soon.C:
		case <-tick.C:
		}
		for _, o := range f.opens.all() {
			o.mu.Lock()
			f.lookAtLocked(o, time.Now())
			o.mu.Unlock()
			f.opens.put(o, 1)
		}
	}
}

func (f *FS) lookAtLocked(o *openFile, now time.Time) {
	if !o.marked {
		return
	}
	if o.writers == 0 && !now.Before(o.pace.settleAt) {
		f.settleLocked(o)
	}
	if !o.marked || f.orphans.has(o.ino) {
		return
	}
	st, err := f.statLocked(o)
	if err != nil {
		return // the next release tells
	}
	if st.Size != o.pace.seen.Size || st.Mtime != o.pace.seen.Mtime {
		o.pace.seen, o.pace.seenAt = st, now
	}
	quiet := now.Sub(o.pace.seenAt) >= quietFor
	due := now.Sub(o.pace.snapAt) >= snapAtLeast
	if changedSince(o.base, st) && (quiet || due) {
		if err := f.snapshotLocked(o); err != nil {
			f.log.Warn("Cannot take a snapshot of an open file", "inode", o.ino, "cause", err)
		}
		o.pace.snapAt = now
	}
}

// snapshotLocked makes what an open file holds now a generation of its own, to be
// uploaded while the file goes on being written to. Without reflinks the copy is
// repeated while the file moves; the last try is kept in any case.
func (f *FS) snapshotLocked(o *openFile) error {
	n, err := f.db.Inode(o.ino)
	if err != nil {
		return err
	}
	src, err := f.cache.Open(o.ino, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer src.Close()
	gen := n.Gen + 1
	var before cache.Stat
	for range copyTries {
		// A store into a page that is dirty already would not move the mtime.
		if err := cache.WriteOut(src); err != nil {
			return err
		}
		if before, err = cache.StatFile(src); err != nil {
			return err
		}
		if err := f.cache.Snapshot(src, o.ino, gen); err != nil {
			return err
		}
		after, err := cache.StatFile(src)
		if err != nil {
			return err
		}
		if f.cache.Reflink() || after.Size == before.Size && after.Mtime == before.Mtime {
			break
		}
	}
	mark := index.OpenMark{Size: before.Size, Mtime: before.Mtime, Ctime: before.Ctime}
	if err := f.commitContent(o.ino, before, &mark); err != nil {
		return err
	}
	o.base, o.pace.snapped = mark, true
	if n.Gen > 0 {
		return f.cache.RemoveSnapshots(o.ino, n.Gen)
	}
	return nil
}

// Nameless says whether an inode is one without a name (sync.Hooks).
func (f *FS) Nameless(ino index.Ino) bool { return f.orphans.has(ino) }

// Snapshot returns the frozen content of the present generation of a file that is
// still open (sync.Hooks).
func (f *FS) Snapshot(ino index.Ino) (path string, gen uint64, cleanup func(), ok bool) {
	n, err := f.db.Inode(ino)
	if err != nil {
		return "", 0, nil, false
	}
	if !f.cache.HasSnapshot(ino, n.Gen) {
		return "", 0, nil, false
	}
	// It stays until the next generation: another name of the file may need it too.
	return f.cache.SnapshotPath(ino, n.Gen), n.Gen, func() {}, true
}

// InUse says whether anybody has an inode open (sync.Hooks).
func (f *FS) InUse(ino index.Ino) bool {
	o := f.opens.peek(ino)
	if o == nil {
		return false
	}
	defer f.opens.put(o, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.marked || o.inUseLocked()
}
