package fusefs

import (
	"fmt"
	"os"

	"berth/fusefs/index"
)

// What was before a checkpoint is noted when it is about to change for the first
// time since: here what a directory has under a name, and what a file holds.

// noteEntry notes what a directory has under a name; n is nil when that is
// nothing.
func (t *txn) noteEntry(dir *index.Inode, name string, n *index.Inode) error {
	checkpoint := t.f.saves.at(dir.Tree)
	if checkpoint == 0 {
		return nil
	}
	if done, err := t.f.db.HasOldEntry(dir.Ino, name, checkpoint); err != nil || done {
		return err
	}
	e := index.OldEntry{Tree: dir.Tree, Parent: dir.Ino, Name: name, Checkpoint: checkpoint}
	if n != nil {
		e.Ino, e.Type = n.Ino, n.Mode&index.TypeMask
	}
	t.PutOldEntry(e)
	return nil
}

// noteNew notes that a name is about to be given to a new inode.
func (t *txn) noteNew(dir *index.Inode, name string, n *index.Inode) error {
	t.f.saves.bear(dir.Tree, n.Ino)
	return t.noteEntry(dir, name, nil)
}

// noteRemoved notes a name that an inode is about to lose. If that is the last of
// a file, its content file is kept instead of removed; else the content lives on
// under the other names.
func (t *txn) noteRemoved(dir *index.Inode, name string, n *index.Inode) error {
	if err := t.noteEntry(dir, name, n); err != nil || !n.IsFile() || n.Links > 1 {
		return err
	}
	checkpoint, err := t.f.toSave(n)
	if err != nil || checkpoint == 0 {
		return err
	}
	path, err := t.f.db.Path(index.Name{Parent: dir.Ino, Name: name})
	if err != nil {
		return err
	}
	s, err := t.f.savedOf(n, path, checkpoint, t.now)
	if err != nil {
		return err
	}
	if !n.Remote && n.Gen > 0 {
		s.File = asideName(n.Ino, n.Gen, checkpoint)
		if t.asides == nil {
			t.asides = make(map[index.Ino]string)
		}
		t.asides[n.Ino] = s.File
	}
	t.PutSaved(s)
	return nil
}

// toSave returns the checkpoint for which a file's content is still to be set
// aside, 0 if there is none.
func (f *FS) toSave(n *index.Inode) (checkpoint uint64, err error) {
	checkpoint = f.saves.at(n.Tree)
	if checkpoint == 0 || f.saves.born(n.Tree, n.Ino) {
		return 0, nil
	}
	if done, err := f.db.HasSaved(n.Ino, checkpoint); err != nil || done {
		return 0, err
	}
	return checkpoint, nil
}

func (f *FS) savedOf(n *index.Inode, path string, checkpoint uint64, now int64) (index.Saved, error) {
	stamp, err := f.sync.VersionStamp(n)
	return index.Saved{Tree: n.Tree, Path: path, Checkpoint: checkpoint, Ino: n.Ino, Gen: n.Gen, Size: n.Size,
		Mode: n.Mode, Mtime: n.Mtime, Stamp: stamp, At: now}, err
}

// asideName names the bytes of a Saved; parseAside reads it back.
func asideName(ino index.Ino, gen, checkpoint uint64) string {
	return fmt.Sprintf("%d.%d.%d", ino, gen, checkpoint)
}

func parseAside(name string) (ino index.Ino, checkpoint uint64, ok bool) {
	var gen uint64
	n, err := fmt.Sscanf(name, "%d.%d.%d", &ino, &gen, &checkpoint)
	return ino, checkpoint, err == nil && n == 3
}

// setAsideLocked sets aside the content of a file before somebody gets to write to
// it. That it cannot be kept does not keep the writer from writing.
func (f *FS) setAsideLocked(o *openFile, n *index.Inode) error {
	if n.Gen == 0 || n.Links == 0 {
		return nil
	}
	checkpoint, err := f.toSave(n)
	if err != nil || checkpoint == 0 {
		return err
	}
	return f.saveLocked(o, n, checkpoint, asideCopy)
}

// saveLocked writes a Saved of a file as it is now, with its bytes unless they
// have to be copied and are more than most.
func (f *FS) saveLocked(o *openFile, n *index.Inode, checkpoint uint64, most int64) error {
	s, err := f.describeSaved(n, checkpoint)
	if err != nil {
		return err
	}
	if n.Gen > 0 && !n.Remote && (f.cache.Reflink() || n.Size <= most) {
		s.File = asideName(n.Ino, n.Gen, checkpoint)
		if err := f.cloneAsideLocked(o, s.File); err != nil {
			f.log.Warn("Cannot set aside a file before it is changed", "inode", n.Ino, "cause", err)
			s.File = ""
		}
	}
	return f.db.Update(func(b *index.Batch) error { b.PutSaved(s); return nil })
}

// describeSaved is savedOf under the first of an inode's names.
func (f *FS) describeSaved(n *index.Inode, checkpoint uint64) (index.Saved, error) {
	path := ""
	names, err := f.db.Names(n)
	if err == nil && len(names) > 0 {
		path, err = f.db.Path(names[0])
	}
	if err != nil {
		return index.Saved{}, err
	}
	return f.savedOf(n, path, checkpoint, f.now().UnixNano())
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
