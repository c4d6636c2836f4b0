package fusefs

import (
	"errors"
	"io/fs"
	"sync"

	"berth/fusefs/index"
)

// An orphan is an inode that lost its last name while the kernel may still use
// it. It keeps its content until the kernel forgets it and nobody has it open,
// and dies with this process.
type orphan struct {
	index.Inode
	aside     string // the name in the cache's "before" that its content is to get
	forgotten bool   // by the kernel
	taken     bool   // it is about to get a name: changes of it wait for that
}

// An orphanTable has the orphans.
type orphanTable struct {
	mu  sync.Mutex // protects all
	all map[index.Ino]*orphan
}

func (t *orphanTable) init() { t.all = make(map[index.Ino]*orphan) }

func (t *orphanTable) add(n index.Inode, aside string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.Others = 0
	t.all[n.Ino] = &orphan{Inode: n, aside: aside}
}

func (t *orphanTable) remove(ino index.Ino) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, ino)
}

func (t *orphanTable) get(ino index.Ino) (orphan, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.all[ino]; o != nil {
		return *o, true
	}
	return orphan{}, false
}

func (t *orphanTable) has(ino index.Ino) bool {
	_, ok := t.get(ino)
	return ok
}

// forget notes that the kernel has no use for an inode any more; ok is false if
// it is no orphan.
func (t *orphanTable) forget(ino index.Ino) (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.all[ino]
	if o != nil {
		o.forgotten = true
	}
	return o != nil
}

// unless runs do, which takes no lock but the index's for usage, if there is no
// such orphan; none comes into being meanwhile.
func (t *orphanTable) unless(ino index.Ino, do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[ino] == nil {
		do()
	}
}

// kept notes that the content was set aside elsewhere.
func (t *orphanTable) kept(ino index.Ino) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.all[ino]; o != nil {
		o.aside = ""
	}
}

func (t *orphanTable) numbers() []index.Ino {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]index.Ino, 0, len(t.all))
	for ino := range t.all {
		out = append(out, ino)
	}
	return out
}

// take returns an orphan that is about to get a name: either remove or giveBack
// follows. Until then it is read here and changed by nobody.
func (t *orphanTable) take(ino index.Ino) (orphan, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.all[ino]
	if o == nil || o.taken {
		return orphan{}, false
	}
	o.taken = true
	return *o, true
}

func (t *orphanTable) giveBack(ino index.Ino) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.all[ino]; o != nil {
		o.taken = false
	}
}

// alter changes an orphan; ok says whether there is one.
func (t *orphanTable) alter(ino index.Ino, do func(n *index.Inode) error) (ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.all[ino]
	if o == nil || o.taken {
		return false, nil
	}
	n := o.Inode
	if err := do(&n); err != nil {
		return true, err
	}
	o.Inode = n
	return true, nil
}

// inode returns an inode of the index or an orphan, or errStale.
func (f *FS) inode(ino index.Ino) (index.Inode, error) {
	n, err := f.db.Inode(ino)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return n, err
	}
	if o, ok := f.orphans.get(ino); ok {
		return o.Inode, nil
	}
	return n, errStale
}

// Forget tells that the kernel knows an inode no more. That matters for one
// without a name only: known inodes take no memory here.
func (r *rawFS) Forget(nodeid, nlookup uint64) {
	f, ino := r.fs, index.Ino(nodeid)
	if f.orphans.forget(ino) {
		f.endOrphan(ino)
	}
}

// endOrphan removes an orphan, or leaves that to the one who closes it last.
func (f *FS) endOrphan(ino index.Ino) {
	o := f.opens.get(ino)
	defer f.opens.put(o, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.marked && !o.inUseLocked() {
		f.endOrphanLocked(o)
	}
}

// endOrphanLocked removes the content of an inode that is a forgotten orphan and
// not open.
func (f *FS) endOrphanLocked(o *openFile) {
	gone, ok := f.orphans.get(o.ino)
	if !ok || !gone.forgotten {
		return
	}
	f.orphans.remove(o.ino)
	f.db.EndOpen(o.ino)
	if !gone.IsFile() {
		return
	}
	if gone.aside != "" {
		if err := f.cache.LinkAside(o.ino, gone.aside); err != nil {
			f.log.Warn("Cannot set aside a removed file", "inode", o.ino, "cause", err)
		}
	}
	f.discards.add(discarded{ino: o.ino})
}

// keepAside sets aside the content of a removed file that is open: its end may be
// far. Of others the content file itself is set aside when the kernel forgets it.
func (f *FS) keepAside(ino index.Ino, name string) {
	o := f.opens.peek(ino)
	if o == nil {
		return
	}
	defer f.opens.put(o, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.r == nil || o.marked {
		return // opened for writing since the checkpoint, and so set aside then
	}
	if err := f.cache.SetAside(o.r, name); err != nil {
		f.log.Warn("Cannot set aside a removed file", "inode", ino, "cause", err)
		return
	}
	f.orphans.kept(ino)
}
