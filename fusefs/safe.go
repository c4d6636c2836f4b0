package fusefs

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/fusefs/cache"
	"berth/fusefs/index"
)

// What is not synced by its user gets to the disk by itself: names and what took
// the place of other content soon, the rest a little later.
const (
	safeEvery   = 5 * time.Second
	volumeEvery = 60 * time.Second
	openReplace = 30 * time.Second // how long old content is kept for a file that is not closed
	manyReplace = 64               // files to be synced one by one
)

// settingSafe is the time, Unix ns, up to which all changes of the index are on
// the disk.
const settingSafe = "safe"

// A replacement is old content that is kept until what took its place is on the
// disk.
type replacement struct {
	old   index.Ino // whose content file it is
	gen   uint64    // if that is the inode's own, renewed: the generation
	since time.Time
}

// A replacedSet has the inodes whose index.Unsynced has an Old.
type replacedSet struct {
	mu  sync.Mutex // protects all
	all map[index.Ino]replacement
}

func (s *replacedSet) init() { s.all = make(map[index.Ino]replacement) }

func (s *replacedSet) add(ino, old index.Ino, gen uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[ino] = replacement{old, gen, time.Now()}
}

func (s *replacedSet) take() map[index.Ino]replacement {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.all
	s.all = make(map[index.Ino]replacement)
	return out
}

// putBack returns what was taken, unless it is there anew.
func (s *replacedSet) putBack(ino index.Ino, r replacement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[ino]; !ok {
		s.all[ino] = r
	}
}

// kept returns the inodes whose content is needed by others.
func (s *replacedSet) kept() map[index.Ino]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[index.Ino]bool, len(s.all))
	for _, r := range s.all {
		out[r.old] = true
	}
	return out
}

// A discarded is content that nothing needs any more once the index is on the
// disk: the content file of an inode, or with old its old content.
type discarded struct {
	ino index.Ino
	old bool
	gen uint64 // of old content
}

// A discardSet has what is to be removed. If it went at once, a power cut could
// leave an index that still needs it.
type discardSet struct {
	mu  sync.Mutex // protects all
	all []discarded
}

func (s *discardSet) add(d ...discarded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, d...)
}

func (s *discardSet) take() []discarded {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.all
	s.all = nil
	return out
}

// safeLoop makes all of it safe from power loss in time.
func (f *FS) safeLoop() error {
	tick := time.NewTicker(safeEvery)
	defer tick.Stop()
	volume := time.NewTicker(volumeEvery)
	defer volume.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return nil
		case <-tick.C:
			f.makeSafe()
			f.db.Reserve()
		case <-volume.C:
			if err := f.syncVolume(); err != nil {
				f.log.Error("Cannot write content to disk", "cause", err)
			}
		}
	}
}

// makeSafe puts on the disk what was done up to now, and removes what is not
// needed any more then.
func (f *FS) makeSafe() {
	gone := f.discards.take()
	if f.db.Commits() == f.safeAt.Load() && len(gone) == 0 && len(f.replaced.kept()) == 0 {
		return
	}
	now, commits := time.Now().UnixNano(), f.db.Commits()
	if err := f.syncIndex(); err != nil {
		f.log.Error("Cannot write content to disk", "cause", err)
		f.discards.add(gone...)
		return
	}
	kept := f.replaced.kept()
	for _, d := range gone {
		var err error
		switch {
		case kept[d.ino]:
			f.discards.add(d)
		case d.old:
			err = f.cache.RemoveOld(d.ino, d.gen)
		default:
			err = f.cache.Remove(d.ino)
		}
		if err != nil {
			f.log.Warn("Cannot remove content that is not needed any more", "inode", d.ino, "cause", err)
		}
	}
	if err := f.db.Update(func(b *index.Batch) error { b.PutSetting(settingSafe, uint64(now)); return nil }); err != nil {
		f.log.Error("Cannot write index", "cause", err)
	}
	if f.db.Commits() == commits+1 { // nothing but that setting
		commits++
	}
	f.safeAt.Store(commits)
}

// syncIndex makes all names and attributes safe from power loss, after the
// content that they may have put in the place of other content.
func (f *FS) syncIndex() error {
	if err := f.syncReplaced(); err != nil {
		return err
	}
	return f.db.Sync()
}

// syncReplaced makes what took the place of other content safe from power loss,
// but for files that are being written to: their old content is still there.
func (f *FS) syncReplaced() error {
	f.syncing.Lock() // who comes second must not return before the first
	defer f.syncing.Unlock()
	taken := f.replaced.take()
	if len(taken) > manyReplace {
		if err := f.cache.SyncVolume(); err != nil {
			for ino, r := range taken {
				f.replaced.putBack(ino, r)
			}
			return err
		}
	}
	var failed error
	for ino, r := range taken {
		done, err := f.syncReplacement(ino, r)
		if err != nil {
			failed = err
		}
		if !done {
			f.replaced.putBack(ino, r)
		}
	}
	return failed
}

func (f *FS) syncReplacement(ino index.Ino, r replacement) (done bool, err error) {
	o := f.opens.get(ino)
	defer f.opens.put(o, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.marked && time.Since(r.since) < openReplace {
		return false, nil
	}
	if r.old == ino {
		defer func() {
			if done {
				f.discards.add(discarded{ino: ino, old: true, gen: r.gen})
			}
		}()
	}
	u, ok, err := f.db.Unsynced(ino)
	if err != nil || !ok || u.Old != r.old {
		return err == nil, err // removed, or synced by its user
	}
	if err := f.syncFile(ino); err != nil {
		return false, err
	}
	return true, f.clearUnsynced(ino)
}

// clearUnsynced notes that the content of an inode is on the disk.
func (f *FS) clearUnsynced(ino index.Ino) error {
	if _, ok, err := f.db.Unsynced(ino); err != nil || !ok {
		return err
	}
	return f.db.Update(func(b *index.Batch) error { b.ClearUnsynced(ino); return nil })
}

// syncContent makes the content of an open file safe from power loss.
func (f *FS) syncContent(o *openFile) error {
	o.mu.Lock()
	file := o.r
	o.mu.Unlock()
	if file == nil {
		return nil
	}
	st, err := cache.StatFile(file)
	if err != nil {
		return err
	}
	if err := fdatasync(file); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if now, err := cache.StatFile(file); err != nil || !sameContent(now, st) {
		return err // what was written meanwhile need not be there
	}
	o.synced = st
	return f.clearUnsynced(o.ino)
}

// syncVolume makes all content that was settled or fetched before safe from power
// loss.
func (f *FS) syncVolume() error {
	before, err := f.db.AllUnsynced()
	if err != nil || len(before) == 0 {
		return err
	}
	if err := f.cache.SyncVolume(); err != nil {
		return err
	}
	const batch = 1000
	var inos []index.Ino
	clear := func() error {
		return f.db.Update(func(b *index.Batch) error {
			for _, ino := range inos {
				// With old content it is syncReplaced's; another one is newer than the sync.
				if u, ok, err := f.db.Unsynced(ino); err != nil {
					return err
				} else if ok && u.Old == 0 && u == before[ino] {
					b.ClearUnsynced(ino)
				}
			}
			return nil
		})
	}
	for ino := range before {
		if inos = append(inos, ino); len(inos) == batch {
			if err := clear(); err != nil {
				return err
			}
			inos = inos[:0]
		}
	}
	return clear()
}

// contentFirst is called before a file takes the place of another by a rename.
// Unless its content is on the disk already, that starts now, and the other's is
// kept until it is: old is whose.
func (f *FS) contentFirst(ino, other index.Ino) (old index.Ino, err error) {
	safe, err := f.contentSafe(ino)
	if err != nil || safe {
		return 0, err
	}
	old = other
	if u, ok, err := f.db.Unsynced(other); err != nil {
		return 0, err
	} else if ok && u.Old == other { // whose own old content does not outlive its name
		if err := f.syncFile(other); err != nil {
			return 0, err
		}
	} else if ok && u.Old != 0 {
		old = u.Old // what was safe last
	}
	f.replaced.add(ino, old, 0)
	return old, nil
}

// syncFile writes a content file to the disk, unless it is only in the bucket.
func (f *FS) syncFile(ino index.Ino) error {
	file, err := f.cache.Open(ino, unix.O_RDONLY)
	if err != nil {
		return ignoreNotExist(err)
	}
	defer file.Close()
	return fdatasync(file)
}

// contentSafe says whether content is safe from power loss, and starts to make it
// so if not.
func (f *FS) contentSafe(ino index.Ino) (bool, error) {
	o := f.opens.get(ino)
	defer f.opens.put(o, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, unsynced, err := f.db.Unsynced(ino); err != nil || !unsynced && !o.marked {
		return true, err
	}
	file, err := f.cache.Open(ino, unix.O_RDONLY)
	if err != nil {
		return true, nil // only in the bucket
	}
	defer file.Close()
	if st, err := cache.StatFile(file); err != nil || o.marked && sameContent(st, o.synced) {
		return err == nil, err
	}
	cache.StartWriteOut(file)
	return false, nil
}

// sameContent says whether a file is as it was.
func sameContent(a, b cache.Stat) bool { return a.Size == b.Size && a.Mtime == b.Mtime }

// noteUnsynced notes of a file that settles whether its content is on the disk.
func (t *txn) noteUnsynced(ino index.Ino, synced bool) error {
	if synced {
		t.ClearUnsynced(ino)
		return nil
	}
	u, _, err := t.f.db.Unsynced(ino)
	if err == nil {
		t.MarkUnsynced(ino, u)
	}
	return err
}
