package fusefs

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"time"

	"berth/fusefs/cache"
	"berth/fusefs/index"
)

const (
	evictEvery = time.Minute
	evictTo    = 0.9 // of the budget, so that not every minute has work

	evictAgain  = 100 * time.Millisecond // between two rounds
	evictVainly = time.Second            // if the first did not make room enough
)

// evictLoop keeps the cache's content within its budget. Its first round also
// removes content files without an inode, which a kill can leave.
func (f *FS) evictLoop() error {
	tick := time.NewTicker(evictEvery)
	defer tick.Stop()
	for round, due := 0, true; ; {
		begun := time.Now()
		if err := f.evict(round == 0); err != nil {
			f.log.Warn("Cannot look through the cache", "cause", err)
		}
		if due {
			f.pruneHistory(round%60 == 0)
			round++
		}
		select {
		case <-f.ctx.Done():
			return nil
		case <-time.After(f.evictRest(time.Since(begun))):
		}
		select {
		case <-f.ctx.Done():
			return nil
		case <-tick.C:
			due = true
		case <-f.evictNow:
			due = false
		}
	}
}

// pruneHistory removes what has been set aside for long enough, and if all is set
// checkpoints too.
func (f *FS) pruneHistory(all bool) {
	if err := f.pruneAside(); err != nil {
		f.log.Warn("Cannot remove what was set aside", "cause", err)
	}
	if !all {
		return
	}
	if err := f.pruneCheckpoints(); err != nil {
		f.log.Warn("Cannot remove old checkpoints", "cause", err)
	}
}

// evictRest returns how long to leave the cache alone after a round: those who
// want room ask for the next at once, also where there is nothing to evict.
func (f *FS) evictRest(round time.Duration) time.Duration {
	least := evictAgain
	if f.space.lack() > 0 {
		least = evictVainly
	}
	return max(least, 10*round)
}

// A cached is one content file as evict sees it.
type cached struct {
	ino index.Ino
	st  cache.Stat
}

// evict removes clean content, what was read longest ago first, until the budget
// and the volume's floor are kept. Content that is not in the bucket yet is never removed.
func (f *FS) evict(leftovers bool) error {
	if f.space.lack() > 0 {
		f.makeSafe() // what was removed gives back its space
	}
	f.evicting.Lock() // an earlier look must not be told after a later one
	defer f.evicting.Unlock()
	budget, err := f.budget()
	if err != nil {
		return err
	}
	var used int64
	var files []cached
	err = f.cache.Sweep(func(ino index.Ino, st cache.Stat) bool {
		if leftovers && f.isLeftover(ino) {
			return f.dropLeftover(ino) == nil
		}
		used += st.Used
		files = append(files, cached{ino, st})
		return f.ctx.Err() == nil
	})
	if used+f.sync.BlockBytes() > budget || f.space.lack() > 0 {
		f.sync.DropIdle()
	}
	used += f.sync.BlockBytes()
	f.cacheUsed.Store(used)
	keep := used - f.space.lack()
	if used > budget {
		keep = min(keep, int64(float64(budget)*evictTo))
	}
	if err != nil || used <= keep {
		return err
	}
	slices.SortFunc(files, func(a, b cached) int {
		return cmp.Compare(max(a.st.Atime, a.st.Mtime), max(b.st.Atime, b.st.Mtime))
	})
	for _, c := range files {
		if used <= keep || f.ctx.Err() != nil {
			break
		}
		gone, err := f.evictOne(c.ino)
		if err != nil {
			return err
		}
		if gone {
			used -= c.st.Used
		}
	}
	f.cacheUsed.Store(used)
	return f.space.look() // those who wait need not wait for the next
}

// hasRoom says whether content that nobody asked for yet can come into the cache
// without anything being evicted for it soon.
func (f *FS) hasRoom() bool {
	budget, err := f.budget()
	return err == nil && f.space.lack() == 0 && float64(f.cacheUsed.Load()) < evictTo*float64(budget)
}

func (f *FS) budget() (int64, error) {
	if f.opts.CacheBytes > 0 {
		return f.opts.CacheBytes, nil
	}
	_, size, err := f.cache.Free()
	return size / 2, err
}

// isLeftover says whether a content file has neither an inode nor a user.
func (f *FS) isLeftover(ino index.Ino) bool {
	if f.InUse(ino) || f.orphans.has(ino) {
		return false
	}
	// A file is made before its inode: what is younger than this process may be
	// on its way.
	st, err := f.cache.Stat(ino)
	if err != nil || st.Ctime > f.started.UnixNano() {
		return false
	}
	_, err = f.db.Inode(ino)
	return errors.Is(err, fs.ErrNotExist)
}

// dropLeftover removes a content file without an inode. One that was to be set
// aside when the process died still is.
func (f *FS) dropLeftover(ino index.Ino) error {
	var last index.Saved
	for {
		s, ok, err := f.db.Saved(ino, last.Checkpoint+1)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		last = s
	}
	f.discards.add(discarded{ino: ino})
	if last.File == "" || f.cache.HasBefore(last.File) {
		return nil
	}
	return f.cache.LinkAside(ino, last.File)
}

// evictOne removes the content of an inode if all its names have it in the
// bucket and nobody has it open.
func (f *FS) evictOne(ino index.Ino) (bool, error) {
	o := f.opens.get(ino)
	defer f.opens.put(o, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.marked || o.inUseLocked() {
		return false, nil
	}
	clean := false
	err := f.db.Update(func(b *index.Batch) error {
		n, err := f.db.Inode(ino)
		if err != nil || n.Remote {
			return ignoreNotExist(err)
		}
		if clean, err = f.stored(&n); err != nil || !clean {
			return err
		}
		n.Remote = true
		b.PutInode(n)
		return nil
	})
	if err != nil || !clean {
		return false, err
	}
	// The index says first that the content is elsewhere: the other way round a
	// death between the two would lose sight of it. A fetch that brought it back
	// meanwhile has done so under the same lock.
	return true, f.db.Update(func(b *index.Batch) error {
		if n, err := f.db.Inode(ino); err != nil || !n.Remote {
			return ignoreNotExist(err)
		}
		return f.cache.Remove(ino)
	})
}

// stored says whether the present generation of a file is in the bucket under one
// of its keys, and no upload of it is due.
func (f *FS) stored(n *index.Inode) (bool, error) {
	queued, err := f.db.Queued(n.Ino)
	if err != nil || queued {
		return false, err
	}
	return f.held(n)
}

// held says whether the bucket has the present generation of a file under one of
// its keys.
func (f *FS) held(n *index.Inode) (bool, error) {
	holders, err := f.db.Holders(n.Ino)
	if err != nil {
		return false, err
	}
	for _, r := range holders {
		if r.Gen == n.Gen && r.ETag != "" && !r.Doomed && r.Intent.Gen == 0 {
			return true, nil
		}
	}
	return false, nil
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
