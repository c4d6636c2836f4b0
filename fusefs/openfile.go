package fusefs

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"berth/fusefs/cache"
	"berth/fusefs/index"
	bucketsync "berth/fusefs/sync"
)

// An openFile is a regular file that somebody has open, or that has not settled
// since. There is at most one for an inode.
type openFile struct {
	ino  index.Ino
	refs int // protected by openTable.mu: handles, a mark, and users under way

	mu      sync.Mutex // protects the fields below, and the content file against change by two
	readers int        // handles without and with write access
	writers int
	r       *os.File           // the content file, for reading only; what the kernel has as backing file
	w       *os.File           // the same for writing, only while this process writes itself
	backing int32              // backing id; used while through
	blocks  *bucketsync.Blocks // instead of r while the content is not all here: reads wait for pieces
	tree    index.Ino          // that the content file is counted for; fixed while it is open
	through bool               // passthrough, fixed while r is open

	outlived bool // writers of an earlier process go on, past this one, until it settles

	marked bool           // may be written to: the index has base as its OpenMark, refs counts it
	base   index.OpenMark // what an unchanged content file looks like
	synced cache.Stat     // as the content file was when it was last synced
	pace   pace           // of settling and snapshots
}

// An openTable has the openFile of each inode that has one.
type openTable struct {
	soon chan time.Duration // asks watch to look again before its time

	mu    sync.Mutex // protects files, and refs in them
	files map[index.Ino]*openFile

	budget *openBudget

	meters map[index.Ino]*metered // what is passthrough and marked; protected by mu
}

func (t *openTable) init(b *openBudget) {
	t.files = make(map[index.Ino]*openFile)
	t.meters = make(map[index.Ino]*metered)
	t.soon = make(chan time.Duration, 1)
	t.budget = b
}

// wake makes watch look again after a time. It never waits.
func (t *openTable) wake(after time.Duration) {
	select {
	case t.soon <- after:
	default: // watch has yet to take an earlier call, and then looks at all
	}
}

// get returns the openFile of an inode, making it, and counts one user more.
func (t *openTable) get(ino index.Ino) *openFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.files[ino]
	if o == nil {
		o = &openFile{ino: ino}
		t.files[ino] = o
	}
	o.refs++
	return o
}

// peek is get without making one; nil when there is none.
func (t *openTable) peek(ino index.Ino) *openFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.files[ino]
	if o != nil {
		o.refs++
	}
	return o
}

// has says whether an inode is in use; it does not count a user.
func (t *openTable) has(ino index.Ino) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.files[ino] != nil
}

// meter has an openFile, which is locked, metered while the kernel writes to it.
func (t *openTable) meter(o *openFile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch on := o.marked && (o.through || o.outlived); {
	case !on:
		delete(t.meters, o.ino)
	case t.meters[o.ino] == nil:
		t.meters[o.ino] = &metered{tree: o.tree}
	}
}

// isMetered says whether the kernel writes to a file.
func (t *openTable) isMetered(ino index.Ino) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.meters[ino] != nil
}

func (t *openTable) meteredFiles() map[index.Ino]*metered {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.meters)
}

// put ends n uses.
func (t *openTable) put(o *openFile, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.refs -= n; o.refs == 0 {
		delete(t.files, o.ino)
	}
}

// retain counts one user more of an openFile in use.
func (t *openTable) retain(o *openFile) {
	t.mu.Lock()
	o.refs++
	t.mu.Unlock()
}

// all returns the open files, each counted as used.
func (t *openTable) all() []*openFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*openFile, 0, len(t.files))
	for _, o := range t.files {
		o.refs++
		out = append(out, o)
	}
	return out
}

// closeAll closes what is left when nobody can ask any more.
func (t *openTable) closeAll() {
	for _, o := range t.all() {
		o.mu.Lock()
		o.closeFiles()
		o.mu.Unlock()
	}
}

func (o *openFile) closeFiles() {
	if o.blocks != nil {
		o.blocks.Close()
		o.blocks = nil
	}
	for _, f := range []**os.File{&o.r, &o.w} {
		if *f != nil {
			(*f).Close()
			*f = nil
		}
	}
}

// inUseLocked says whether a handle is open.
func (o *openFile) inUseLocked() bool { return o.readers+o.writers > 0 }

// isOpenLocked says whether the content is open, whole or in pieces.
func (o *openFile) isOpenLocked() bool { return o.r != nil || o.blocks != nil }

// takeLocked makes room for the content file of an inode of a tree to be opened.
// It comes before anything is changed.
func (f *FS) takeLocked(o *openFile, tree index.Ino) error {
	if o.isOpenLocked() {
		return nil
	}
	o.tree = tree
	err := f.opens.budget.take(tree)
	if err != nil {
		f.settleWaiting() // some may be open only because they have not settled yet
		err = f.opens.budget.take(tree)
	}
	return err
}

// untakeLocked undoes takeLocked when the content file was not opened.
func (f *FS) untakeLocked(o *openFile) {
	if !o.isOpenLocked() {
		f.opens.budget.giveBack(o.tree)
	}
}

// openLocked opens the content file, after takeLocked, and fixes how it is served:
// by the kernel, unless it is opened to be written to where a limit is near.
func (f *FS) openLocked(o *openFile, write bool) error {
	if o.isOpenLocked() {
		return nil
	}
	r, err := f.cache.Open(o.ino, os.O_RDONLY)
	if err != nil {
		f.untakeLocked(o)
		if errors.Is(err, fs.ErrNotExist) {
			return f.lostLocked(o)
		}
		return err
	}
	f.serveLocked(o, r, write)
	return nil
}

// serveLocked fixes how an open content file is served.
func (f *FS) serveLocked(o *openFile, r *os.File, write bool) {
	o.r, o.through = r, false
	if n, ok := f.orphans.get(o.ino); ok {
		f.db.CountOpen(o.ino, n.Tree, n.Size)
	}
	if f.passthrough.Load() && !(write && f.near(o.tree)) {
		id, errno := f.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(r.Fd())})
		if errno == 0 {
			o.backing, o.through = id, true
		} else {
			// This inode goes through the daemon while it is open; others may do better.
			f.log.Warn("Cannot register a backing file", "inode", o.ino, "cause", errno)
		}
	}
	f.opens.meter(o)
}

// lostLocked is for a content file that should be here and is not, as when a power
// cut took back that it was evicted. It is errRemote if the bucket has it.
func (f *FS) lostLocked(o *openFile) error {
	err := f.sync.Lost(o.ino)
	if errors.Is(err, fs.ErrNotExist) {
		return errStale
	}
	if err != nil {
		return err
	}
	return errRemote
}

// closeLocked undoes openLocked when no handle is left. A file without a name
// ends here.
func (f *FS) closeLocked(o *openFile) {
	if o.through {
		f.server.UnregisterBackingFd(o.backing)
		o.through = false
		f.opens.meter(o)
	}
	if o.isOpenLocked() {
		f.opens.budget.giveBack(o.tree)
	}
	o.closeFiles()
	f.endOrphanLocked(o)
}

// writableLocked returns the content file open for writing by this process. It
// is closed with the last writer, or its descriptor would keep the file from
// settling.
func (f *FS) writableLocked(o *openFile) (*os.File, error) {
	if o.w == nil {
		w, err := f.cache.Open(o.ino, os.O_RDWR)
		if err != nil {
			return nil, err
		}
		o.w = w
	}
	return o.w, nil
}

// statLocked returns the attributes of the content file.
func (f *FS) statLocked(o *openFile) (cache.Stat, error) {
	if o.r != nil {
		return cache.StatFile(o.r)
	}
	return f.cache.Stat(o.ino)
}

// changedSince says whether a content file was changed after its mark was made.
func changedSince(m index.OpenMark, st cache.Stat) bool {
	return m.Fresh || st.Size != m.Size || st.Mtime != m.Mtime
}

// current returns an inode as it is at this moment: of a file that is open for
// writing size and times are those of its content file. live says that it is, so
// that the kernel must ask each time.
func (f *FS) current(ino index.Ino) (n index.Inode, live bool, err error) {
	o := f.opens.peek(ino)
	if o == nil {
		// Read only now: what settled before has been committed.
		n, err = f.inode(ino)
		return n, false, err
	}
	defer f.opens.put(o, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	if n, err = f.inode(ino); err != nil || !o.marked {
		return n, false, err
	}
	st, err := f.statLocked(o)
	if err != nil {
		return n, true, err
	}
	if changedSince(o.base, st) {
		adoptStat(&n, st)
	}
	if o.writers > 0 || o.w != nil {
		return n, true, nil
	}
	// It settles soon; if nobody can write any more its attributes are final.
	final, err := f.settledLocked(o)
	final = final && err == nil
	o.pace.told = o.pace.told || final
	return n, !final, nil
}

// adoptStat copies size and times of a changed content file to its inode.
func adoptStat(n *index.Inode, st cache.Stat) {
	n.Size, n.Mtime, n.Ctime = st.Size, st.Mtime, max(n.Ctime, st.Ctime)
}

// Busy says whether an inode is open for writing or has not settled since.
func (f *FS) Busy(ino index.Ino) bool {
	o := f.opens.peek(ino)
	if o == nil {
		return false
	}
	defer f.opens.put(o, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.marked
}

// fdatasync makes the content of a file safe from power loss.
func fdatasync(file *os.File) error {
	for {
		if err := unix.Fdatasync(int(file.Fd())); err != unix.EINTR {
			return err
		}
	}
}
