package fusefs

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"berth"
	"berth/fusefs/index"
)

// Bounds of what is set aside.
const (
	asideCopy = 64 << 20 // copied at most for one file; above it only reflinks
	openCopy  = 4 << 20  // the same for one that is open for writing at a checkpoint,
	openMost  = 1000     // of which so many are copied
	maxBorn   = 1 << 18  // new inodes that are remembered for one tree

	checkpointSetting = "checkpoint" // the last number given
)

// A saveTable knows the current checkpoint of each tree that has one.
type saveTable struct {
	mu      sync.RWMutex // protects the fields below, and all in current
	current map[index.Ino]*epoch
	making  map[index.Ino]*sync.Mutex // held while a checkpoint of the tree is made; before all other locks
}

// lock makes checkpoints of some trees one at a time: one that overtook another
// would have what changes next noted for the earlier.
func (s *saveTable) lock(roots []index.Ino) (unlock func()) {
	roots = slices.Compact(slices.Sorted(slices.Values(roots)))
	held := make([]*sync.Mutex, len(roots))
	s.mu.Lock()
	if s.making == nil {
		s.making = make(map[index.Ino]*sync.Mutex)
	}
	for i, root := range roots {
		if s.making[root] == nil {
			s.making[root] = new(sync.Mutex)
		}
		held[i] = s.making[root]
	}
	s.mu.Unlock()
	for _, m := range held { // in the order of the roots
		m.Lock()
	}
	return func() {
		for _, m := range held {
			m.Unlock()
		}
	}
}

// An epoch is the time since a checkpoint of a tree.
type epoch struct {
	checkpoint uint64
	born       map[index.Ino]struct{} // inodes that were made in it: they held nothing at the checkpoint
}

func (s *saveTable) at(tree index.Ino) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.current[tree]; e != nil {
		return e.checkpoint
	}
	return 0
}

func (s *saveTable) set(tree index.Ino, checkpoint uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		s.current = make(map[index.Ino]*epoch)
	}
	s.current[tree] = &epoch{checkpoint: checkpoint}
}

// clear ends the checkpoints of a tree.
func (s *saveTable) clear(tree index.Ino) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.current, tree)
}

// bear notes a new inode. One that is forgotten costs that its content is set
// aside for nothing.
func (s *saveTable) bear(tree, ino index.Ino) {
	if s.at(tree) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.current[tree]
	if e == nil {
		return
	}
	if e.born == nil || len(e.born) >= maxBorn {
		e.born = make(map[index.Ino]struct{})
	}
	e.born[ino] = struct{}{}
}

func (s *saveTable) born(tree, ino index.Ino) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.current[tree]
	if e == nil {
		return false
	}
	_, ok := e.born[ino]
	return ok
}

// loadSaves reads the checkpoints of the trees.
func (f *FS) loadSaves() error {
	trees, err := f.db.Trees()
	if err != nil {
		return err
	}
	for _, root := range trees {
		err := f.db.Checkpoints(root, func(c index.Checkpoint) bool {
			f.saves.set(root, c.Number)
			return false
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Checkpoint pins what the files of the trees hold now and returns its number,
// greater than all before. From then on what a name or a file had is noted before
// it changes for the first time.
func (f *FS) Checkpoint(ctx context.Context, trees []berth.Tree) (uint64, error) {
	number, err := f.checkpoint(trees)
	if err != nil {
		return 0, fmt.Errorf("cannot make a checkpoint: %w", err)
	}
	return number, nil
}

func (f *FS) checkpoint(trees []berth.Tree) (number uint64, err error) {
	var roots []index.Ino
	for _, t := range trees {
		root, err := f.treeRoot(t)
		if err != nil {
			return 0, err
		}
		roots = append(roots, root)
	}
	defer f.saves.lock(roots)()
	f.freezeOpen(roots)
	clock := f.sync.Clock().Now().Time
	err = f.db.Update(func(b *index.Batch) error {
		last, err := f.db.Setting(checkpointSetting)
		if err != nil {
			return err
		}
		number = last + 1
		b.PutSetting(checkpointSetting, number)
		for _, root := range roots {
			b.PutCheckpoint(root, number, clock)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	before := make(map[index.Ino]uint64)
	for _, root := range roots {
		before[root] = f.saves.at(root)
		f.saves.set(root, number)
	}
	// Those that are opened from now on see the number.
	return number, f.pinOpen(before, number)
}

// treeRoot returns the root of a tree. Where the whole bucket is mounted it is the
// zero Tree.
func (f *FS) treeRoot(t berth.Tree) (index.Ino, error) {
	whole := t == berth.Tree{}
	if whole != f.opts.WholeBucket {
		return 0, fmt.Errorf("invalid tree %q: whole buckets have no trees, and other mounts nothing else (whole bucket: %v): %w", treeString(t), f.opts.WholeBucket, fs.ErrInvalid)
	}
	if whole {
		return index.RootIno, nil
	}
	root, ok, err := f.db.Tree(t.Prefix())
	if err == nil && !ok {
		err = fmt.Errorf("tree %s is not attached: %w", t, fs.ErrNotExist)
	}
	return root, err
}

// treeString returns a tree's place in the bucket, "" for the whole bucket.
func treeString(t berth.Tree) string {
	if t == (berth.Tree{}) {
		return ""
	}
	return t.String()
}

// freezeOpen makes what open files of some trees hold generations, as far as that
// is cheap: of what was closed just now the kernel may not have told yet.
func (f *FS) freezeOpen(roots []index.Ino) {
	left := openMost
	for _, o := range f.opens.all() {
		o.mu.Lock()
		if n, err := f.db.Inode(o.ino); err == nil && slices.Contains(roots, n.Tree) && o.marked {
			copied, err := f.freezeSmallLocked(o, left > 0)
			if err != nil {
				f.log.Warn("Cannot pin an open file", "inode", o.ino, "cause", err)
			}
			if copied {
				left--
			}
		}
		o.mu.Unlock()
		f.opens.put(o, 1)
	}
}

// freezeSmallLocked settles a file, or makes what it holds a generation if it is
// small and may be copied.
func (f *FS) freezeSmallLocked(o *openFile, mayCopy bool) (copied bool, err error) {
	if o.writers == 0 {
		f.settleLocked(o)
	}
	if !o.marked || !mayCopy {
		return false, nil
	}
	st, err := f.statLocked(o)
	if err != nil || !changedSince(o.base, st) || !f.cache.Reflink() && st.Size > openCopy {
		return false, err
	}
	return true, f.freezeLocked(o)
}

// pinOpen pins the last generation of each file that is open for writing: by a copy
// if it was not changed since, else from the checkpoint before, whose number is
// given.
func (f *FS) pinOpen(before map[index.Ino]uint64, number uint64) error {
	for _, o := range f.opens.all() {
		o.mu.Lock()
		err := f.pinOpenLocked(o, before, number)
		o.mu.Unlock()
		f.opens.put(o, 1)
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *FS) pinOpenLocked(o *openFile, before map[index.Ino]uint64, number uint64) error {
	n, err := f.db.Inode(o.ino)
	if err != nil {
		return ignoreNotExist(err)
	}
	last, wanted := before[n.Tree]
	if !wanted || !o.marked {
		return nil
	}
	if done, err := f.db.HasSaved(n.Ino, number); err != nil || done {
		return err
	}
	if st, err := f.statLocked(o); err == nil && !changedSince(o.base, st) {
		return f.saveLocked(o, &n, number, openCopy)
	}
	s, err := f.describeSaved(&n, number)
	if err != nil {
		return err
	}
	old, ok, err := f.db.Saved(n.Ino, last)
	if err != nil {
		return err
	}
	if ok && old.Gen == n.Gen && old.File != "" {
		s.File = asideName(n.Ino, n.Gen, number)
		if err := f.cache.LinkBefore(old.File, s.File); err != nil {
			s.File = ""
		}
	}
	return f.db.Update(func(b *index.Batch) error { b.PutSaved(s); return nil })
}
