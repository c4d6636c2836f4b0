package fusefs

import (
	"fmt"
	"os"
	"strings"

	"berth/fusefs/index"
)

// asidePath returns the path below its tree's root of a name that is about to
// change, and the tree's checkpoint, if what it has now is still to be set aside.
func (t *txn) asidePath(parent *index.Inode, name string) (path string, checkpoint uint64, err error) {
	checkpoint = t.f.saves.at(parent.Tree)
	if checkpoint == 0 {
		return "", 0, nil
	}
	tree, ok := t.f.trees.prefix(parent.Tree)
	prefix, err := t.prefix(parent)
	if err != nil || !ok {
		return "", 0, err
	}
	path = strings.TrimPrefix(prefix, tree) + name
	_, done, err := t.f.db.Saved(parent.Tree, path, checkpoint)
	if err != nil || done {
		return "", 0, err
	}
	return path, checkpoint, nil
}

// asideAbsent notes that a name which is about to be made did not exist.
func (t *txn) asideAbsent(parent *index.Inode, name string) error {
	path, checkpoint, err := t.asidePath(parent, name)
	if err == nil && checkpoint != 0 {
		t.PutSaved(index.Saved{Tree: parent.Tree, Path: path, Checkpoint: checkpoint, At: t.now, Absent: true})
	}
	return err
}

// asideRemoved sets aside the content of a file that loses a name. If that was
// the last, its content file is kept instead of removed; else the content lives
// on under the other names.
func (t *txn) asideRemoved(parent *index.Inode, name string, n *index.Inode) error {
	if !n.IsFile() {
		return nil
	}
	path, checkpoint, err := t.asidePath(parent, name)
	if err != nil || checkpoint == 0 {
		return err
	}
	s := savedOf(n, path, checkpoint, t.now)
	if n.Links <= 1 && !n.Remote && n.Gen > 0 {
		s.File = asideName(n, checkpoint)
		if t.asides == nil {
			t.asides = make(map[index.Ino]string)
		}
		t.asides[n.Ino] = s.File
	}
	t.PutSaved(s)
	return nil
}

// asideMoved notes what was under a name that a file leaves for another.
func (t *txn) asideMoved(parent *index.Inode, name string, n *index.Inode) error {
	if !n.IsFile() {
		return nil
	}
	path, checkpoint, err := t.asidePath(parent, name)
	if err == nil && checkpoint != 0 {
		t.PutSaved(savedOf(n, path, checkpoint, t.now))
	}
	return err
}

func savedOf(n *index.Inode, path string, checkpoint uint64, now int64) index.Saved {
	return index.Saved{Tree: n.Tree, Path: path, Checkpoint: checkpoint, Ino: n.Ino, Gen: n.Gen, Size: n.Size,
		Mode: n.Mode, Mtime: n.Mtime, Stamp: n.Stamp, At: now}
}

func asideName(n *index.Inode, checkpoint uint64) string {
	return fmt.Sprintf("%d.%d.%d", n.Ino, n.Gen, checkpoint)
}

// setAsideLocked sets aside the content of a file before somebody gets to write to
// it. That it cannot be kept does not keep the writer from writing.
func (f *FS) setAsideLocked(o *openFile, n *index.Inode) error {
	checkpoint := f.saves.at(n.Tree)
	if checkpoint == 0 || n.Gen == 0 || n.Links == 0 {
		return nil
	}
	names, err := f.db.Names(n)
	if err != nil {
		return err
	}
	var saves []index.Saved
	for _, name := range names {
		path, err := f.db.Path(name)
		if err != nil {
			return err
		}
		if _, done, err := f.db.Saved(n.Tree, path, checkpoint); err != nil || done {
			return err
		}
		saves = append(saves, savedOf(n, path, checkpoint, f.now().UnixNano()))
	}
	file := ""
	if !n.Remote && (f.cache.Reflink() || n.Size <= asideCopy) {
		file = asideName(n, checkpoint)
		if err := f.cloneAsideLocked(o, file); err != nil {
			f.log.Warn("Cannot set aside a file before it is changed", "inode", n.Ino, "cause", err)
			file = ""
		}
	}
	return f.db.Update(func(b *index.Batch) error {
		for _, s := range saves {
			s.File = file
			b.PutSaved(s)
		}
		return nil
	})
}

func (f *FS) cloneAsideLocked(o *openFile, name string) error {
	src := o.r
	if src == nil {
		var err error
		if src, err = f.cache.Open(o.ino, os.O_RDONLY); err != nil {
			return err
		}
		defer src.Close()
	}
	return f.cache.SetAside(src, name)
}
