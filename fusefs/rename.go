package fusefs

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"berth"
	"berth/fusefs/index"
)

// Rename serves rename(2) and renameat2(2) with NOREPLACE and EXCHANGE.
func (r *rawFS) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	f := r.fs
	op := renaming{f: f, c: callerOf(cancel, &in.InHeader),
		oldDir: index.Ino(in.NodeId), newDir: index.Ino(in.Newdir), oldName: oldName, newName: newName,
		noReplace: in.Flags&unix.RENAME_NOREPLACE != 0, exchange: in.Flags&unix.RENAME_EXCHANGE != 0}
	if in.Flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 || op.noReplace && op.exchange {
		return fuse.EINVAL
	}
	return f.statusOf("rename", in.NodeId, op.run())
}

// A renaming is one rename under way.
type renaming struct {
	f                   *FS
	c                   caller
	oldDir, newDir      index.Ino
	oldName, newName    string
	noReplace, exchange bool
	below               map[index.Ino]int // bytes of the longest path below a directory, where that had to be looked up

	src, old index.Ino // whose old content is kept for src until src's own is on the disk; 0 = none
}

func (r *renaming) run() error {
	f := r.f
	if err := errors.Join(f.guardName(r.oldDir, r.oldName), f.guardName(r.newDir, r.newName)); err != nil {
		return err
	}
	if err := checkName(r.newName); err != nil {
		return err
	}
	src, err := f.lookup(r.c, r.oldDir, r.oldName)
	if err != nil {
		return err
	}
	dst, err := f.lookup(r.c, r.newDir, r.newName)
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, n := range []index.Inode{src, dst} {
		if n.IsDir() {
			if err := r.prepareDir(n); err != nil {
				return err
			}
		}
	}
	if exists && !r.exchange && src.IsFile() && dst.IsFile() {
		if r.old, err = f.contentFirst(src.Ino, dst.Ino); err != nil {
			return err
		}
		r.src = src.Ino
	}
	if err := f.updateFor(r.newDir, r.apply); err != nil || r.old == 0 {
		return err
	}
	f.replaced.add(r.src, r.old, 0) // again: it may have been synced before the rename was there
	return nil
}

// prepareDir makes the names below a directory known where some of them are not, for
// the objects under its old keys have to follow.
func (r *renaming) prepareDir(n index.Inode) error {
	if n.Below < index.UnknownBelow {
		return r.f.listed(r.c, n.Ino)
	}
	longest, err := r.f.survey(r.c, n.Ino)
	if r.below == nil {
		r.below = make(map[index.Ino]int, 2)
	}
	r.below[n.Ino] = longest
	return err
}

// fits refuses a directory whose longest key would be too long under a new name.
func (r *renaming) fits(n *index.Inode, from, to string) error {
	below, ok := r.below[n.Ino]
	if !ok {
		below = int(n.Below)
	}
	if n.IsDir() && len(to) > len(from) && len(to)+1+below > maxKey {
		return syscall.ENAMETOOLONG
	}
	return nil
}

// survey lists the directories below one that were never listed, and returns the
// length of the longest path below it.
func (f *FS) survey(c caller, top index.Ino) (longest int, err error) {
	type place struct {
		dir index.Ino
		len int
	}
	for todo := []place{{top, 0}}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		n, err := f.db.Inode(at.dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return 0, err
		}
		if n.Listed == 0 {
			if err := f.store(c, "list", at.dir, func(ctx context.Context) error { return f.sync.List(ctx, at.dir) }); err != nil {
				return 0, err
			}
		}
		for after := ""; ; {
			entries, err := f.db.Entries(at.dir, after, dirPage)
			if err != nil {
				return 0, err
			}
			for _, e := range entries {
				length := at.len + 1 + len(e.Name)
				longest = max(longest, length)
				if e.Type == index.TypeDir {
					todo = append(todo, place{e.Ino, length})
				}
			}
			if len(entries) < dirPage {
				break
			}
			after = entries[len(entries)-1].Name
		}
	}
	return longest, nil
}

// apply is the rename itself.
func (r *renaming) apply(t *txn) error {
	oldParent, err := t.parent(r.oldDir)
	if err != nil {
		return err
	}
	newParent, err := t.parent(r.newDir)
	if err != nil {
		return err
	}
	if oldParent.Tree != newParent.Tree {
		return syscall.EXDEV
	}
	src, err := t.named(r.oldDir, r.oldName)
	if err != nil {
		return err
	}
	dst, err := t.named(r.newDir, r.newName)
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errStale) {
		dst, err = nil, nil
	}
	if err != nil {
		return err
	}
	if err := r.check(t, src, dst); err != nil {
		return err
	}
	switch {
	case dst != nil && src.Ino == dst.Ino:
		return nil // two names of one file: nothing is to be done
	case r.exchange:
		return r.swap(t, oldParent, newParent, src, dst)
	}
	return r.move(t, oldParent, newParent, src, dst)
}

// check says why a rename is refused.
func (r *renaming) check(t *txn, src, dst *index.Inode) error {
	switch {
	case dst == nil && r.exchange:
		return syscall.ENOENT
	case dst != nil && r.noReplace:
		return syscall.EEXIST
	}
	if err := r.notInto(t, src, r.newDir); err != nil {
		return err
	}
	if dst == nil {
		return nil
	}
	if r.exchange {
		return r.notInto(t, dst, r.oldDir)
	}
	switch {
	case src.Ino == dst.Ino:
		return nil
	case src.IsDir() && !dst.IsDir():
		return syscall.ENOTDIR
	case !src.IsDir() && dst.IsDir():
		return syscall.EISDIR
	}
	return t.f.removable(dst, dst.IsDir())
}

// notInto refuses to move a directory into itself or below.
func (r *renaming) notInto(t *txn, n *index.Inode, dir index.Ino) error {
	if !n.IsDir() {
		return nil
	}
	if len(t.f.synth.list(n.Ino)) > 0 {
		return syscall.EBUSY
	}
	for dir != 0 {
		if dir == n.Ino {
			return syscall.EINVAL
		}
		up, err := t.f.db.Inode(dir)
		if err != nil {
			return err
		}
		dir = up.Parent
	}
	return nil
}

func (r *renaming) move(t *txn, oldParent, newParent *index.Inode, src, dst *index.Inode) error {
	from, err := t.f.db.Path(index.Name{Parent: r.oldDir, Name: r.oldName})
	if err != nil {
		return err
	}
	oldPrefix, err1 := t.prefix(oldParent)
	newPrefix, err2 := t.prefix(newParent)
	if err := errors.Join(err1, err2, r.fits(src, oldPrefix+r.oldName, newPrefix+r.newName)); err != nil {
		return err
	}
	if dst != nil {
		if err := t.noteRemoved(newParent, r.newName, dst); err != nil {
			return err
		}
		if err := t.dropName(newParent, r.newName, dst); err != nil {
			return err
		}
		if r.old != 0 && src.Ino == r.src {
			t.MarkUnsynced(src.Ino, index.Unsynced{Old: r.old})
		}
	} else if err := t.noteEntry(newParent, r.newName, nil); err != nil {
		return err
	}
	if err := t.noteEntry(oldParent, r.oldName, src); err != nil {
		return err
	}
	if err := r.carry(t, oldParent, r.oldName, newParent, r.newName, src); err != nil {
		return err
	}
	if err := t.keepDir(oldParent, r.oldName); err != nil {
		return err
	}
	return t.changedName(berth.OpRename, src, index.Name{Parent: r.newDir, Name: r.newName}, from)
}

// carry moves one name of an inode to a name that is free. The key of a file is
// doomed; the keys below a directory are left to a Move.
func (r *renaming) carry(t *txn, from *index.Inode, oldName string, to *index.Inode, newName string, n *index.Inode) error {
	t.Unlink(from.Ino, oldName, n.Ino, n.Mode&index.TypeMask)
	t.touchDir(from)
	prefix, err := t.prefix(from)
	if err != nil {
		return err
	}
	if !n.IsDir() {
		if err := t.doom(prefix + oldName); err != nil {
			return err
		}
	}
	return r.settleIn(t, prefix+oldName, to, newName, n)
}

// settleIn gives an inode that has left its old key its new name.
func (r *renaming) settleIn(t *txn, oldKey string, to *index.Inode, newName string, n *index.Inode) error {
	if n.IsDir() {
		t.AddMove(oldKey+"/", n.Ino)
		t.moved = true
		n.Parent, n.Name, n.Explicit = to.Ino, newName, true
	}
	if err := t.addName(to, newName, n); err != nil {
		return err
	}
	n.Ctime, n.AttrStamp = t.now, t.stamp()
	if n.IsFile() {
		n.Stamp = n.AttrStamp
	}
	if n.Stored() {
		t.enqueue(n.Ino)
	}
	return nil
}

// swap exchanges two names. The keys of two files both stay wanted; that of a
// file whose name a directory gets does not.
func (r *renaming) swap(t *txn, oldParent, newParent, src, dst *index.Inode) error {
	oldPrefix, err1 := t.prefix(oldParent)
	newPrefix, err2 := t.prefix(newParent)
	oldPath, err3 := t.f.db.Path(index.Name{Parent: r.oldDir, Name: r.oldName})
	newPath, err4 := t.f.db.Path(index.Name{Parent: r.newDir, Name: r.newName})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	if err := errors.Join(r.fits(src, oldPrefix+r.oldName, newPrefix+r.newName), r.fits(dst, newPrefix+r.newName, oldPrefix+r.oldName)); err != nil {
		return err
	}
	err5 := errors.Join(t.noteEntry(oldParent, r.oldName, src), t.noteEntry(newParent, r.newName, dst))
	if err5 != nil {
		return err5
	}
	t.Unlink(r.oldDir, r.oldName, src.Ino, src.Mode&index.TypeMask)
	t.Unlink(r.newDir, r.newName, dst.Ino, dst.Mode&index.TypeMask)
	if !src.IsDir() && dst.IsDir() {
		err1 = t.doom(oldPrefix + r.oldName)
	}
	if !dst.IsDir() && src.IsDir() {
		err2 = t.doom(newPrefix + r.newName)
	}
	return errors.Join(err1, err2,
		r.settleIn(t, oldPrefix+r.oldName, newParent, r.newName, src),
		r.settleIn(t, newPrefix+r.newName, oldParent, r.oldName, dst),
		t.changedName(berth.OpRename, src, index.Name{Parent: r.newDir, Name: r.newName}, oldPath),
		t.changedName(berth.OpRename, dst, index.Name{Parent: r.oldDir, Name: r.oldName}, newPath))
}
