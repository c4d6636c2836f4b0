package fusefs

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"berth"
	"berth/fusefs/index"
)

// Link serves link(2) within a tree.
func (r *rawFS) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	f, c := r.fs, callerOf(cancel, &in.InHeader)
	err := f.link(c, index.Ino(in.Oldnodeid), index.Ino(in.NodeId), name)
	if err == nil {
		err = f.fillEntry(index.Ino(in.Oldnodeid), out)
	}
	return f.statusOf("link", in.NodeId, err)
}

func (f *FS) link(c caller, ino, dir index.Ino, name string) error {
	if err := f.guardNew(dir, name); err != nil {
		return err
	}
	if f.synth.isSynth(ino) {
		return syscall.EPERM
	}
	if err := f.listed(c, dir); err != nil {
		return err
	}
	if f.orphans.has(ino) {
		return f.linkOrphan(ino, dir, name)
	}
	return f.updateFor(dir, func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		return t.linkTo(n, dir, name)
	})
}

// linkTo gives an inode one name more.
func (t *txn) linkTo(n *index.Inode, dir index.Ino, name string) error {
	parent, err := t.parent(dir)
	switch {
	case err != nil:
		return err
	case n.IsDir():
		return syscall.EPERM
	case n.Tree != parent.Tree:
		return syscall.EXDEV
	}
	if err := t.free(dir, name); err != nil {
		return err
	}
	if err := t.addName(parent, name, n); err != nil {
		return err
	}
	n.Links++
	n.Ctime, n.AttrStamp = t.now, t.stamp()
	if n.Stored() {
		t.enqueue(n.Ino)
	}
	if err := t.noteEntry(parent, name, nil); err != nil {
		return err
	}
	return t.changedName(berth.OpCreate, n, index.Name{Parent: dir, Name: name}, "")
}

// linkOrphan gives a first name to a file without one, which the kernel asks for
// only if it was made by open(2) with O_TMPFILE.
func (f *FS) linkOrphan(ino, dir index.Ino, name string) error {
	o := f.opens.get(ino)
	defer f.opens.put(o, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	gone, ok := f.orphans.take(ino)
	if !ok {
		return syscall.ENOENT
	}
	n := gone.Inode
	f.saves.bear(n.Tree, ino)
	err := f.update(func(t *txn) error {
		if err := t.roomForOne(n.Tree); err != nil {
			return err
		}
		t.keep(&n)
		if o.marked {
			t.MarkOpen(ino, o.base)
		}
		return t.linkTo(&n, dir, name)
	})
	if err != nil {
		f.orphans.giveBack(ino)
		return err
	}
	f.orphans.remove(ino)
	if !o.marked {
		f.db.EndOpen(ino)
	}
	return nil
}

// Tmpfile serves open(2) with O_TMPFILE. The file has no name and so no object;
// link(2) can give it one. Without that it ends with its last user.
func (r *rawFS) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	return r.fs.statusOf("tmpfile", in.NodeId, r.fs.tmpfile(in, out))
}

func (f *FS) tmpfile(in *fuse.CreateIn, out *fuse.CreateOut) error {
	dir := index.Ino(in.NodeId)
	if f.synth.isSynth(dir) {
		return syscall.EROFS
	}
	parent, err := f.inode(dir)
	if err != nil {
		return err
	}
	if parent.Links == 0 {
		return syscall.ENOENT
	}
	n := index.Inode{Mode: index.TypeFile | in.Mode&permMask, Tree: parent.Tree}
	n.UID, n.GID = f.ownerOf(in.Uid, in.Gid, &parent)
	o, n, err := f.newContent(dir, n)
	if err != nil {
		return err
	}
	defer o.mu.Unlock()
	n.Ctime = n.Mtime
	n.Stamp = f.sync.Clock().Now()
	n.AttrStamp = n.Stamp
	f.orphans.add(n, "")
	f.db.CountOpen(n.Ino, n.Tree, 0)
	o.setMarked(f, o.base)
	f.countLocked(o, writable(in.Flags), &out.OpenOut)
	return f.entryUnlocked(n, &out.EntryOut)
}
