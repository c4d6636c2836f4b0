package fusefs

import (
	"errors"
	"io/fs"
	"maps"
	"sync"
	"syscall"
	"time"

	"berth/fusefs/index"
)

// How files that the kernel writes to itself are metered.
const (
	meterEvery = 100 * time.Millisecond
	meterFar   = 8 << 30 // where that much room is left it is enough to look
	farPasses  = 5       // each so manieth time
)

// A metered file is one that the kernel writes to itself.
type metered struct {
	tree index.Ino
	used int64 // bytes of disk when it was last looked at
}

// meterLoop looks at the growth of files that are written to past this process.
// Where a limit or the floor is passed they are frozen until there is room again.
func (f *FS) meterLoop() error {
	tick := time.NewTicker(meterEvery)
	defer tick.Stop()
	for pass := 0; ; pass++ {
		select {
		case <-f.ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := f.space.look(); err != nil {
			f.log.Warn("Cannot look at the cache's volume", "cause", err)
		}
		f.meter(pass%farPasses == 0)
		f.thawWhereRoom()
		if f.space.lack() > 0 {
			f.evictSoon()
		}
	}
}

// meter counts the metered files, all or those whose trees are not far from a
// limit, and freezes those that grew too much.
func (f *FS) meter(all bool) {
	files := f.opens.meteredFiles()
	skip := make(map[index.Ino]bool)
	if !all && f.space.room() > meterFar {
		for _, m := range files {
			if _, seen := skip[m.tree]; !seen {
				_, _, room := f.db.Usage(m.tree)
				skip[m.tree] = room.Bytes > meterFar
			}
		}
	}
	grew := make(map[index.Ino]bool)
	for ino, m := range files {
		if skip[m.tree] {
			continue
		}
		st, err := f.cache.Stat(ino)
		if err != nil {
			continue // it ends at this moment
		}
		f.db.Resize(ino, st.Size)
		grew[ino] = st.Used > m.used
		m.used = st.Used
	}
	for ino, m := range files {
		if !skip[m.tree] && f.excessive(m.tree, grew[ino]) {
			f.freeze(ino, m.tree)
		}
	}
}

// excessive says whether a file must not be written to past this process: its
// tree is above its limit, or it grows on a volume that is at its floor.
func (f *FS) excessive(tree index.Ino, grew bool) bool {
	_, _, room := f.db.Usage(tree)
	return room.Bytes < 0 || grew && f.space.room() <= 0
}

// A freezer has the content files that were made immutable.
type freezer struct {
	mu    sync.Mutex // protects files
	files map[index.Ino]*frozen
}

type frozen struct {
	tree index.Ino

	// mu is held while the flag is changed, and protects the fields below. It comes
	// after openFile.mu and before freezer.mu.
	mu     sync.Mutex
	set    bool // the flag
	ended  bool // no longer to be frozen
	abused bool // it grew while it was thawed for a change that its owner asked for
}

func (z *freezer) get(ino index.Ino) *frozen {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.files[ino]
}

// add notes a file that is to be frozen, or returns nil if it is noted.
func (z *freezer) add(ino, tree index.Ino) *frozen {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.files[ino] != nil {
		return nil
	}
	if z.files == nil {
		z.files = make(map[index.Ino]*frozen)
	}
	z.files[ino] = &frozen{tree: tree}
	return z.files[ino]
}

func (z *freezer) remove(ino index.Ino) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.files, ino)
}

func (z *freezer) all() map[index.Ino]*frozen {
	z.mu.Lock()
	defer z.mu.Unlock()
	return maps.Clone(z.files)
}

// freeze makes a file immutable beside this goroutine: the kernel writes out what
// is dirty first, and other files of the tree must not grow meanwhile.
func (f *FS) freeze(ino, tree index.Ino) {
	z := f.freezer.add(ino, tree)
	if z == nil {
		return
	}
	if !f.cache.Freezes() {
		f.log.Warn("Cannot stop writers of a full tree: the cache's file system has no immutable files that stop them", "inode", ino)
		if prefix, ok := f.trees.prefix(tree); ok && f.opts.OverLimit != nil {
			f.opts.OverLimit(treeName(prefix))
		}
		return
	}
	f.group.Go(func() error {
		z.mu.Lock()
		if !z.ended {
			err := f.cache.Freeze(ino)
			z.set = err == nil
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				f.log.Error("Cannot stop the writers of a file", "inode", ino, "cause", err)
			}
		}
		z.mu.Unlock()
		if !f.opens.isMetered(ino) { // it has settled meanwhile
			f.thaw(ino)
		}
		return nil
	})
}

// thaw lets a file be written to again. It waits for a freeze that is under way.
func (f *FS) thaw(ino index.Ino) {
	z := f.freezer.get(ino)
	if z == nil {
		return
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	f.endFrozen(ino, z)
}

// endFrozen is thaw with the lock of the file held.
func (f *FS) endFrozen(ino index.Ino, z *frozen) {
	if z.set {
		if err := f.cache.Thaw(ino); err != nil {
			f.log.Error("Cannot let a file be written to again", "inode", ino, "cause", err)
			return
		}
	}
	z.set, z.ended = false, true
	f.freezer.remove(ino)
}

// thawWhereRoom thaws the files of trees that are below their limits again.
func (f *FS) thawWhereRoom() {
	for ino, z := range f.freezer.all() {
		if _, _, room := f.db.Usage(z.tree); room.Bytes > 0 && f.space.lack() == 0 && z.mu.TryLock() {
			f.endFrozen(ino, z)
			z.mu.Unlock()
		}
	}
}

// whileThawedLocked runs a change of an open file that its owner asked for, which
// may make room. A frozen file is thawed for so long; who then lets it grow past
// this process gets no second change.
func (f *FS) whileThawedLocked(o *openFile, do func() error) error {
	z := f.freezer.get(o.ino)
	if z == nil {
		return do()
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if !z.set {
		return do()
	}
	if z.abused {
		return syscall.EDQUOT
	}
	before, err := f.statLocked(o)
	if err == nil {
		err = f.cache.Thaw(o.ino)
	}
	if err != nil {
		return err
	}
	err = do()
	f.recountLocked(o)
	if !f.excessive(z.tree, true) {
		z.set = false // as Thaw left it
		f.endFrozen(o.ino, z)
		return err
	}
	if ferr := f.cache.Freeze(o.ino); ferr != nil {
		return errors.Join(err, ferr)
	}
	if after, serr := f.statLocked(o); serr == nil && after.Size > before.Size {
		z.abused = true
		f.recountLocked(o)
	}
	return err
}
