package fusefs

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"berth"
	"berth/fusefs/index"
)

// dropName takes a name from an inode: the entry, the key's doom and the
// directory's times. The inode ends with its last name.
func (t *txn) dropName(dir *index.Inode, name string, n *index.Inode) error {
	prefix, err := t.prefix(dir)
	if err != nil {
		return err
	}
	key := prefix + name
	if n.IsDir() {
		key += "/"
	}
	if err := t.doom(key); err != nil {
		return err
	}
	t.Unlink(dir.Ino, name, n.Ino, n.Mode&index.TypeMask)
	t.touchDir(dir)
	if n.Links--; n.Links == 0 || n.IsDir() {
		t.delete(n)
		return nil
	}
	n.Ctime, n.AttrStamp = t.now, t.stamp()
	if n.Stored() {
		t.enqueue(n.Ino)
	}
	return nil
}

// keepDir sees to it that a directory does not go with its last name: from then
// on it has a marker. gone is the name that the change takes away.
func (t *txn) keepDir(dir *index.Inode, gone string) error {
	if dir.Explicit || dir.Parent == 0 {
		return nil
	}
	entries, err := t.f.db.Entries(dir.Ino, "", 2)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name != gone {
			return nil
		}
	}
	dir.Explicit = true
	t.enqueue(dir.Ino)
	return nil
}

// Unlink serves unlink(2).
func (r *rawFS) Unlink(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	err := r.fs.remove(callerOf(cancel, h), index.Ino(h.NodeId), name, false)
	return r.fs.statusOf("unlink", h.NodeId, err)
}

// Rmdir serves rmdir(2).
func (r *rawFS) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	err := r.fs.remove(callerOf(cancel, h), index.Ino(h.NodeId), name, true)
	return r.fs.statusOf("rmdir", h.NodeId, err)
}

func (f *FS) remove(c caller, dir index.Ino, name string, wantDir bool) error {
	if err := f.guardName(dir, name); err != nil {
		return err
	}
	n, err := f.lookup(c, dir, name)
	if err != nil {
		return err
	}
	if n.IsDir() && wantDir {
		if err := f.listed(c, n.Ino); err != nil {
			return err
		}
	}
	return f.updateFor(dir, func(t *txn) error {
		parent, err := t.parent(dir)
		if err != nil {
			return err
		}
		n, err := t.named(dir, name)
		if err != nil {
			return err
		}
		if err := f.removable(n, wantDir); err != nil {
			return err
		}
		return t.removeName(parent, name, n)
	})
}

// removeName removes a name that may be removed, and tells of it.
func (t *txn) removeName(parent *index.Inode, name string, n *index.Inode) error {
	if err := t.changedName(berth.OpRemove, n, index.Name{Parent: parent.Ino, Name: name}, ""); err != nil {
		return err
	}
	if err := t.noteRemoved(parent, name, n); err != nil {
		return err
	}
	if err := t.dropName(parent, name, n); err != nil {
		return err
	}
	return t.keepDir(parent, name)
}

// named returns the inode of a name in a directory.
func (t *txn) named(dir index.Ino, name string) (*index.Inode, error) {
	e, err := t.f.db.Lookup(dir, name)
	if err != nil {
		return nil, err
	}
	return t.inode(e.Ino)
}

// removable says why a name cannot be removed.
func (f *FS) removable(n *index.Inode, wantDir bool) error {
	switch {
	case !wantDir && n.IsDir():
		return syscall.EISDIR
	case !wantDir:
		return nil
	case !n.IsDir():
		return syscall.ENOTDIR
	case len(f.synth.list(n.Ino)) > 0:
		return syscall.EBUSY // something is mounted in it
	}
	entries, err := f.db.Entries(n.Ino, "", 1)
	if err == nil && len(entries) > 0 {
		err = syscall.ENOTEMPTY
	}
	return err
}
