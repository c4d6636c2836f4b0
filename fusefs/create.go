package fusefs

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"berth"
	"berth/fusefs/index"
)

// maxTarget is the longest symlink, as the kernel has it.
const maxTarget = 4095

// addName gives an inode a name in a directory: the entry, the key's revival and
// the directory's times. The name must be free.
func (t *txn) addName(dir *index.Inode, name string, n *index.Inode) error {
	key, err := t.key(dir, name, n)
	if err != nil {
		return err
	}
	if n.Stored() { // a fifo or socket leaves the object of an earlier file doomed
		if err := t.revive(key); err != nil {
			return err
		}
	}
	t.Link(dir.Ino, name, n.Ino, n.Mode&index.TypeMask)
	t.touchDir(dir)
	return nil
}

// key returns the key of a name, or ENAMETOOLONG.
func (t *txn) key(dir *index.Inode, name string, n *index.Inode) (string, error) {
	prefix, err := t.prefix(dir)
	if err != nil {
		return "", err
	}
	key := prefix + name
	if n.IsDir() {
		key += "/"
	}
	if len(key) > maxKey {
		return "", syscall.ENAMETOOLONG
	}
	return key, nil
}

// free returns EEXIST if a directory has a name already.
func (t *txn) free(dir index.Ino, name string) error {
	_, err := t.f.db.Lookup(dir, name)
	switch {
	case err == nil:
		return syscall.EEXIST
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// parent returns a directory that is about to get or lose a name.
func (t *txn) parent(dir index.Ino) (*index.Inode, error) {
	n, err := t.inode(dir)
	if errors.Is(err, errStale) {
		return nil, syscall.ENOENT // removed: nothing can be made in it
	}
	if err == nil && !n.IsDir() {
		return nil, syscall.ENOTDIR
	}
	return n, err
}

// make makes an inode with one name. fill completes it. st and mark are set for
// a file that is open from the start.
func (f *FS) make(c caller, h *fuse.InHeader, name string, n index.Inode, mark *index.OpenMark) (index.Inode, error) {
	dir := index.Ino(h.NodeId)
	if err := f.guardNew(dir, name); err != nil {
		return n, err
	}
	if err := f.listed(c, dir); err != nil {
		return n, err
	}
	err := f.updateFor(dir, func(t *txn) error {
		parent, err := t.parent(dir)
		if err != nil {
			return err
		}
		if err := t.free(dir, name); err != nil {
			return err
		}
		if err := t.roomForOne(parent.Tree); err != nil {
			return err
		}
		n.Tree, n.Links = parent.Tree, 1
		n.UID, n.GID = f.ownerOf(h.Uid, h.Gid, parent)
		if n.Mtime == 0 {
			n.Mtime = t.now
		}
		n.Ctime = n.Mtime
		n.Stamp = t.stamp()
		n.AttrStamp = n.Stamp
		if n.IsDir() {
			n.Parent, n.Name = dir, name
			n.Explicit, n.Listed = true, t.now
			n.Mode |= parent.Mode & modeSetgid
		}
		if err := t.addName(parent, name, &n); err != nil {
			return err
		}
		t.keep(&n)
		t.made = n.Ino
		switch {
		case mark != nil:
			t.MarkOpen(n.Ino, *mark)
			t.CountOpen(&n, false)
		case n.Stored():
			t.enqueue(n.Ino)
		}
		if err := t.noteNew(parent, name, &n); err != nil {
			return err
		}
		return t.changedName(berth.OpCreate, &n, index.Name{Parent: dir, Name: name}, "")
	})
	return n, err
}

// Mknod serves mknod(2) of files, fifos and sockets.
func (r *rawFS) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	f, c := r.fs, callerOf(cancel, &in.InHeader)
	n := index.Inode{Mode: in.Mode & (index.TypeMask | permMask)}
	switch in.Mode & index.TypeMask {
	case index.TypeFile, 0:
		n.Mode = index.TypeFile | in.Mode&permMask
		return f.statusOf("mknod", in.NodeId, f.makeFile(c, &in.InHeader, name, n, out))
	case index.TypeFifo, index.TypeSocket:
		return f.statusOf("mknod", in.NodeId, f.makeNode(c, &in.InHeader, name, n, out))
	}
	return fuse.EPERM
}

// Mkdir serves mkdir(2).
func (r *rawFS) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	n := index.Inode{Mode: index.TypeDir | in.Mode&permMask}
	return r.fs.statusOf("mkdir", in.NodeId, r.fs.makeNode(callerOf(cancel, &in.InHeader), &in.InHeader, name, n, out))
}

// Symlink serves symlink(2). Targets are kept as they are and never resolved here.
func (r *rawFS) Symlink(cancel <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	if len(target) > maxTarget {
		return fuse.Status(syscall.ENAMETOOLONG)
	}
	n := index.Inode{Mode: index.TypeSymlink | 0o777, Size: int64(len(target)), Target: target, Gen: 1}
	return r.fs.statusOf("symlink", h.NodeId, r.fs.makeNode(callerOf(cancel, h), h, name, n, out))
}

// makeNode makes an inode without a content file.
func (f *FS) makeNode(c caller, h *fuse.InHeader, name string, n index.Inode, out *fuse.EntryOut) error {
	var err error
	if n.Ino, err = f.db.NewIno(); err != nil {
		return err
	}
	if n, err = f.make(c, h, name, n, nil); err != nil {
		return err
	}
	return f.fillEntry(n.Ino, out)
}

// makeFile makes an empty file that nobody has open.
func (f *FS) makeFile(c caller, h *fuse.InHeader, name string, n index.Inode, out *fuse.EntryOut) error {
	if err := f.takeSpace(c, index.Ino(h.NodeId), blockSize); err != nil {
		return err
	}
	o, n, err := f.newContent(index.Ino(h.NodeId), n)
	if err != nil {
		return err
	}
	defer f.opens.put(o, 1)
	defer o.mu.Unlock()
	n.Gen = 1
	if n, err = f.make(c, h, name, n, nil); err != nil {
		return f.dropContent(o, err)
	}
	f.closeLocked(o)
	out.NodeId, out.Generation = uint64(n.Ino), 1
	return f.entryUnlocked(n, out)
}

// newContent gives an inode that will be in a directory a number and an empty
// content file that is open. Its openFile is returned locked and used once.
func (f *FS) newContent(parent index.Ino, n index.Inode) (*openFile, index.Inode, error) {
	var tree index.Ino // 0 in a directory where nothing can be made
	if dir, err := f.inode(parent); err == nil {
		tree = dir.Tree
	}
	ino, err := f.db.NewIno()
	if err != nil {
		return nil, n, err
	}
	o := f.opens.get(ino)
	o.mu.Lock()
	if err = f.takeLocked(o, tree); err == nil {
		err = f.openNewLocked(o)
	}
	if err != nil {
		err = f.dropContent(o, err)
		o.mu.Unlock()
		f.opens.put(o, 1)
		return nil, n, err
	}
	n.Ino, n.Mtime = ino, o.base.Mtime
	return o, n, nil
}

// openNewLocked makes the content file of a new inode and opens it, after
// takeLocked.
func (f *FS) openNewLocked(o *openFile) error {
	file, err := f.cache.New(o.ino)
	if err != nil {
		f.untakeLocked(o)
		return err
	}
	f.serveLocked(o, file, true)
	st, err := f.statLocked(o)
	o.base = index.OpenMark{Mtime: st.Mtime, Ctime: st.Ctime, Fresh: true}
	return err
}

// dropContent undoes newContent but for the lock and the use; it returns cause.
func (f *FS) dropContent(o *openFile, cause error) error {
	f.closeLocked(o)
	return errors.Join(cause, f.cache.Remove(o.ino))
}

// entryUnlocked is fillEntry for an inode whose openFile is locked by the caller
// and not marked.
func (f *FS) entryUnlocked(n index.Inode, out *fuse.EntryOut) error {
	f.plainAttr(&n, &out.Attr)
	out.NodeId, out.Generation = uint64(n.Ino), 1
	out.SetEntryTimeout(f.believe())
	out.SetAttrTimeout(0)
	return nil
}

// Create serves open(2) with O_CREAT of a name that the kernel does not know.
func (r *rawFS) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	f, c := r.fs, callerOf(cancel, &in.InHeader)
	err := f.createOpen(c, in, name, out)
	if errors.Is(err, syscall.EEXIST) && in.Flags&syscall.O_EXCL == 0 {
		err = f.openExisting(c, in, name, out) // it has come into being since the lookup
	}
	return f.statusOf("create", in.NodeId, err)
}

func (f *FS) createOpen(c caller, in *fuse.CreateIn, name string, out *fuse.CreateOut) error {
	if err := f.takeSpace(c, index.Ino(in.NodeId), blockSize); err != nil {
		return err
	}
	o, n, err := f.newContent(index.Ino(in.NodeId), index.Inode{Mode: index.TypeFile | in.Mode&permMask})
	if err != nil {
		return err
	}
	mark := o.base
	n, err = f.make(c, &in.InHeader, name, n, &mark)
	if err != nil {
		err = f.dropContent(o, err)
		o.mu.Unlock()
		f.opens.put(o, 1)
		return err
	}
	o.setMarked(f, mark)
	f.countLocked(o, writable(in.Flags), &out.OpenOut)
	err = f.entryUnlocked(n, &out.EntryOut)
	if o.writers == 0 { // O_CREAT with O_RDONLY
		f.settleSoonLocked(o)
	}
	o.mu.Unlock()
	return err
}

func (f *FS) openExisting(c caller, in *fuse.CreateIn, name string, out *fuse.CreateOut) error {
	n, err := f.lookup(c, index.Ino(in.NodeId), name)
	if err != nil {
		return err
	}
	if !n.IsFile() {
		return syscall.EEXIST
	}
	if err := f.openHandle(c, n.Ino, in.Flags, &out.OpenOut); err != nil {
		return err
	}
	return f.fillEntry(n.Ino, &out.EntryOut)
}

// Readlink serves readlink(2).
func (r *rawFS) Readlink(cancel <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	n, err := r.fs.described(callerOf(cancel, h), index.Ino(h.NodeId))
	if err == nil && !n.IsSymlink() {
		err = syscall.EINVAL
	}
	return []byte(n.Target), r.fs.statusOf("readlink", h.NodeId, err)
}
