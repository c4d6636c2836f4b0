package sync

import (
	"fmt"

	"berth/fusefs/index"
)

// link gives an inode a name inside Update, as fusefs does it.
func (w *world) link(b *index.Batch, parent index.Ino, name string, n *index.Inode) error {
	b.Link(parent, name, n.Ino, n.Mode&index.TypeMask)
	key, err := w.sync.nameKey(index.Name{Parent: parent, Name: name}, n.IsDir())
	if err != nil {
		return err
	}
	if r, ok, err := w.db.Remote(key); err != nil {
		return err
	} else if ok && r.Doomed {
		r.Doomed = false
		b.PutRemote(r)
	}
	return nil
}

func (w *world) doom(b *index.Batch, parent index.Ino, name string, dir bool) error {
	key, err := w.sync.nameKey(index.Name{Parent: parent, Name: name}, dir)
	if err != nil {
		return err
	}
	r, ok, err := w.db.Remote(key)
	if err != nil || !ok {
		return err
	}
	r.Doomed = true
	b.PutRemote(r)
	return nil
}

func (w *world) make(p string, n index.Inode) index.Ino {
	w.t.Helper()
	dir, name := w.parent(p)
	var err error
	n.Ino, err = w.db.NewIno()
	w.check(err)
	if n.IsFile() {
		f, err := w.cache.Create(n.Ino)
		w.check(err)
		_, err = f.WriteString(n.Target)
		w.check(err)
		w.check(f.Close())
		n.Size, n.Target = int64(len(n.Target)), ""
	}
	w.update(func(b *index.Batch) error {
		n.Tree, n.Links, n.Gen = dir.Tree, 1, 1
		n.Mtime = w.sync.now().UnixNano()
		n.Ctime = n.Mtime
		n.Stamp = w.sync.Clock().Now()
		n.AttrStamp = n.Stamp
		if n.IsDir() {
			n.Parent, n.Name, n.Explicit, n.Listed = dir.Ino, name, true, 1
		}
		b.PutInode(n)
		b.Enqueue(n.Ino, n.Mtime)
		return w.link(b, dir.Ino, name, &n)
	})
	w.sync.Kick(n.Ino)
	return n.Ino
}

func (w *world) create(p, content string) index.Ino {
	w.t.Helper()
	return w.make(p, index.Inode{Mode: index.TypeFile | 0o644, Target: content})
}
func (w *world) mkdir(p string) index.Ino {
	w.t.Helper()
	return w.make(p, index.Inode{Mode: index.TypeDir | 0o755})
}
func (w *world) symlink(p, target string) index.Ino {
	w.t.Helper()
	return w.make(p, index.Inode{Mode: index.TypeSymlink | 0o777, Target: target, Size: int64(len(target))})
}

// write replaces the content of a file: open, write, close and settle.
func (w *world) write(p, content string) {
	w.t.Helper()
	n := w.describe(p)
	w.setBusy(n.Ino, true)
	w.update(func(b *index.Batch) error {
		n, err := w.db.Inode(n.Ino)
		if err != nil {
			return err
		}
		n.Remote = false
		b.PutInode(n)
		b.MarkOpen(n.Ino, index.OpenMark{Fresh: true})
		return nil
	})
	f, err := w.cache.Create(n.Ino)
	w.check(err)
	_, err = f.WriteString(content)
	w.check(err)
	w.check(f.Close())
	w.settle(n.Ino, int64(len(content)))
}

func (w *world) settle(ino index.Ino, size int64) {
	w.t.Helper()
	w.update(func(b *index.Batch) error {
		n, err := w.db.Inode(ino)
		if err != nil {
			return err
		}
		n.Gen++
		n.Size, n.Mtime = size, w.sync.now().UnixNano()
		n.Stamp = w.sync.Clock().Now()
		b.PutInode(n)
		b.ClearOpen(ino)
		b.Enqueue(ino, n.Mtime)
		return nil
	})
	w.setBusy(ino, false)
	w.sync.Kick(ino)
}

// chmod changes attributes, describing the file first as fusefs does.
func (w *world) chmod(p string, mode uint32) {
	w.t.Helper()
	n := w.describe(p)
	w.update(func(b *index.Batch) error {
		n, err := w.db.Inode(n.Ino)
		if err != nil {
			return err
		}
		n.Mode = n.Mode&^0o7777 | mode
		n.Xattrs = map[string][]byte{"user.mode": []byte(fmt.Sprintf("%o\x00", mode))}
		n.AttrStamp = w.sync.Clock().Now()
		if n.IsDir() {
			n.Explicit = true
		}
		b.PutInode(n)
		b.Enqueue(n.Ino, w.sync.now().UnixNano())
		return nil
	})
	w.sync.Kick(n.Ino)
}

func (w *world) unlink(p string) {
	w.t.Helper()
	dir, name := w.parent(p)
	n := w.at(p)
	w.update(func(b *index.Batch) error {
		if err := w.drop(b, dir.Ino, name, n.Ino); err != nil {
			return err
		}
		return w.doom(b, dir.Ino, name, n.IsDir())
	})
	w.sync.KickDoomed()
	if _, err := w.db.Inode(n.Ino); err != nil {
		w.sync.Gone(n.Ino)
		return
	}
	w.sync.Kick(n.Ino)
}

// drop takes one name from an inode, which goes with its last.
func (w *world) drop(b *index.Batch, dir index.Ino, name string, ino index.Ino) error {
	n, err := w.db.Inode(ino)
	if err != nil {
		return err
	}
	b.Unlink(dir, name, ino, n.Mode&index.TypeMask)
	if n.Links--; n.Links == 0 {
		b.DeleteInode(ino)
		return nil
	}
	b.PutInode(n)
	b.Enqueue(ino, w.sync.now().UnixNano())
	return nil
}

func (w *world) hardlink(p, to string) {
	w.t.Helper()
	n := w.describe(p)
	dir, name := w.parent(to)
	w.update(func(b *index.Batch) error {
		n, err := w.db.Inode(n.Ino)
		if err != nil {
			return err
		}
		n.Links++
		n.AttrStamp = w.sync.Clock().Now()
		b.PutInode(n)
		b.Enqueue(n.Ino, w.sync.now().UnixNano())
		return w.link(b, dir.Ino, name, &n)
	})
	w.sync.Kick(n.Ino)
}

// rename moves a name, over another file if there is one.
func (w *world) rename(from, to string) {
	w.t.Helper()
	fromDir, fromName := w.parent(from)
	toDir, toName := w.parent(to)
	n := w.at(from)
	w.update(func(b *index.Batch) error {
		n, err := w.db.Inode(n.Ino)
		if err != nil {
			return err
		}
		if e, err := w.db.Lookup(toDir.Ino, toName); err == nil {
			if err := w.drop(b, toDir.Ino, toName, e.Ino); err != nil {
				return err
			}
		}
		b.Unlink(fromDir.Ino, fromName, n.Ino, n.Mode&index.TypeMask)
		if n.IsDir() {
			key, err := w.sync.dirKey(n.Ino)
			if err != nil {
				return err
			}
			b.AddMove(key, n.Ino)
			n.Parent, n.Name, n.Explicit = toDir.Ino, toName, true
		} else if err := w.doom(b, fromDir.Ino, fromName, false); err != nil {
			return err
		}
		n.AttrStamp = w.sync.Clock().Now()
		if n.IsFile() {
			n.Stamp = n.AttrStamp
		}
		b.PutInode(n)
		b.Enqueue(n.Ino, w.sync.now().UnixNano())
		return w.link(b, toDir.Ino, toName, &n)
	})
	w.sync.Kick(n.Ino)
	w.sync.KickDoomed()
	w.sync.KickMoves()
}

// swap exchanges the names of two files.
func (w *world) swap(p, q string) {
	w.t.Helper()
	pDir, pName := w.parent(p)
	qDir, qName := w.parent(q)
	pn, qn := w.describe(p), w.describe(q)
	w.update(func(b *index.Batch) error {
		b.Unlink(pDir.Ino, pName, pn.Ino, pn.Mode&index.TypeMask)
		b.Unlink(qDir.Ino, qName, qn.Ino, qn.Mode&index.TypeMask)
		for _, n := range []index.Inode{pn, qn} {
			n, err := w.db.Inode(n.Ino)
			if err != nil {
				return err
			}
			n.AttrStamp = w.sync.Clock().Now()
			n.Stamp = n.AttrStamp
			b.PutInode(n)
			b.Enqueue(n.Ino, w.sync.now().UnixNano())
		}
		b.Link(pDir.Ino, pName, qn.Ino, index.TypeFile)
		b.Link(qDir.Ino, qName, pn.Ino, index.TypeFile)
		return nil
	})
	w.sync.Kick(pn.Ino)
	w.sync.Kick(qn.Ino)
}
