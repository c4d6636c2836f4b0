package sync

import (
	"context"
	"errors"
	"io/fs"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

// vanishFile removes a name whose object is gone, if the store confirms it.
func (s *Syncer) vanishFile(ctx context.Context, r index.Remote) error {
	if r.Doomed || r.Intent.Gen != 0 || s.claims.hasKey(r.Key) {
		return nil
	}
	_, err := s.store.Head(ctx, r.Key)
	if errors.Is(err, fs.ErrNotExist) {
		return s.vanish(r, true)
	}
	return err
}

// vanish takes over that an object is gone from the bucket: its name goes unless
// there is local work for the inode that will write it again. A file whose only
// content it was goes altogether.
func (s *Syncer) vanish(r index.Remote, publish bool) error {
	var gone []index.Name
	var deleted index.Ino
	inUse := s.hooks.InUse(r.Ino)
	err := s.db.Update(func(b *index.Batch) error {
		gone, deleted = nil, 0
		if err := s.stillIs(r); err != nil {
			return err
		}
		n, err := s.db.Inode(r.Ino)
		if errors.Is(err, fs.ErrNotExist) {
			b.DeleteRemote(r.Key)
			return nil
		}
		if err != nil {
			return err
		}
		if n.IsDir() {
			return s.unmarkLocked(b, r, &n)
		}
		gone, err = s.losesLocked(r, &n)
		if err != nil {
			return err
		}
		b.DeleteRemote(r.Key)
		s.touched.add(r.Key)
		if len(gone) == 0 {
			return nil
		}
		deleted = unname(b, &n, gone, inUse)
		return nil
	})
	if err != nil {
		return ignoreChanged(err)
	}
	if deleted != 0 {
		if err := s.cache.Remove(deleted); err != nil {
			s.log.Warn("Cannot remove content of a file that others deleted", "ino", deleted, "cause", err)
		}
	}
	for _, name := range gone {
		s.hooks.EntryChanged(name.Parent, name.Name)
	}
	if publish && len(gone) > 0 {
		s.publish(r.Key, berth.OpRemove, object.Info{})
	}
	return nil
}

// unname takes names from an inode. It returns its number if that was deleted with
// the last of them; one that is in use becomes an orphan instead.
func unname(b *index.Batch, n *index.Inode, gone []index.Name, inUse bool) (deleted index.Ino) {
	for _, name := range gone {
		b.Unlink(name.Parent, name.Name, n.Ino, n.Mode&index.TypeMask)
	}
	n.Links -= min(n.Links, uint32(len(gone)))
	if n.Links == 0 && !inUse {
		b.DeleteInode(n.Ino)
		return n.Ino
	}
	b.PutInode(*n)
	if n.Links == 0 {
		b.MarkOrphan(n.Ino)
		b.Dequeue(n.Ino)
	}
	return 0
}

// unmarkLocked takes over that a directory's marker is gone: it is wanted no more
// when nothing is in it, unless its marker is queued.
func (s *Syncer) unmarkLocked(b *index.Batch, r index.Remote, n *index.Inode) error {
	b.DeleteRemote(r.Key)
	s.touched.add(r.Key)
	queued, err := s.db.Queued(n.Ino)
	if err == nil && !queued && n.Explicit {
		n.Explicit = false
		b.PutInode(*n)
	}
	return err
}

// losesLocked returns the names that an inode loses with an object. It is called
// inside Update.
func (s *Syncer) losesLocked(r index.Remote, n *index.Inode) ([]index.Name, error) {
	names, err := s.db.Names(n)
	if err != nil {
		return nil, err
	}
	if n.Remote {
		others, err := s.db.Holders(n.Ino)
		if err != nil {
			return nil, err
		}
		only := true
		for _, h := range others {
			only = only && (h.Key == r.Key || h.ETag == "" || h.Gen != gen(n))
		}
		if only {
			return names, nil
		}
	}
	queued, err := s.db.Queued(n.Ino)
	if err != nil || queued {
		return nil, err
	}
	if _, open, err := s.db.OpenMark(n.Ino); err != nil || open {
		return nil, err
	}
	for _, name := range names {
		if key, err := s.nameKey(name, false); err == nil && key == r.Key {
			return []index.Name{name}, nil
		}
	}
	return nil, nil
}

func (s *Syncer) vanishDirNamed(ctx context.Context, l *listing, name string) error {
	e, err := s.db.Lookup(l.dir, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && e.Type != index.TypeDir {
		return nil // removed here: its keys are doomed
	}
	if err != nil {
		return err
	}
	return s.vanishDir(ctx, l, name, e.Ino)
}

// vanishDir removes a directory without a key in the bucket, and all below it that
// has no local work, if the store confirms it.
func (s *Syncer) vanishDir(ctx context.Context, l *listing, name string, dir index.Ino) error {
	p := l.prefix + name + "/"
	keys := s.touched.begin()
	defer s.touched.end(keys)
	res, err := s.store.List(ctx, object.ListOptions{Prefix: p, Max: 1})
	if err != nil || len(res.Objects) > 0 {
		return err
	}
	for after := ""; ; {
		rs, err := s.db.RemotesAfter(p, after, movePage)
		if err != nil {
			return err
		}
		for _, r := range rs {
			after = r.Key
			if r.Doomed || r.Intent.Gen != 0 || r.ETag == "" || s.touched.has(keys, r.Key) {
				continue
			}
			if err := s.vanish(r, l.publish); err != nil {
				return err
			}
		}
		if len(rs) < movePage {
			break
		}
	}
	removed, err := s.removeEmpty(dir)
	if err == nil && removed {
		s.hooks.EntryChanged(l.dir, name)
		if l.publish {
			s.publish(p, berth.OpRemove, object.Info{})
		}
	}
	return err
}

// removeEmpty removes a directory that is not wanted when empty, and such below
// it.
func (s *Syncer) removeEmpty(dir index.Ino) (removed bool, err error) {
	for after := ""; ; {
		entries, err := s.db.Entries(dir, after, movePage)
		if err != nil {
			return false, err
		}
		for _, e := range entries {
			after = e.Name
			if e.Type != index.TypeDir {
				return false, nil
			}
			if gone, err := s.removeEmpty(e.Ino); err != nil || !gone {
				return false, err
			}
		}
		if len(entries) < movePage {
			break
		}
	}
	err = s.db.Update(func(b *index.Batch) error {
		removed = false
		n, err := s.db.Inode(dir)
		if err != nil || n.Explicit || n.Parent == 0 {
			return err
		}
		if queued, err := s.db.Queued(dir); err != nil || queued {
			return err
		}
		entries, err := s.db.Entries(dir, "", 1)
		if err != nil || len(entries) > 0 {
			return err
		}
		b.Unlink(n.Parent, n.Name, dir, index.TypeDir)
		b.DeleteInode(dir)
		removed = true
		return nil
	})
	return removed, err
}

// newLocked returns an inode for a child of a directory, with the directory's
// tree and owner.
func (s *Syncer) newLocked(parent *index.Inode) (index.Inode, error) {
	ino, err := s.db.NewIno()
	return index.Inode{Ino: ino, Tree: parent.Tree, UID: parent.UID, GID: parent.GID, Links: 1, Gen: 1}, err
}

// adopt gives an object that nothing here is known of a name.
func (s *Syncer) adopt(key string, info object.Info) error {
	root, path, ok, err := s.treeOf(key)
	if err != nil || !ok || CheckKey(key) != nil {
		return err
	}
	var top index.Name
	err = s.db.Update(func(b *index.Batch) error {
		top = index.Name{}
		if _, known, err := s.db.Remote(key); err != nil || known {
			return err
		}
		n, made, err := s.addLocked(b, root, path, info)
		if err != nil || n.Ino == 0 {
			return err
		}
		top = made
		b.PutRemote((&incoming{want: want{key: key}, info: info}).remote(&n))
		return nil
	})
	if err == nil && top.Parent != 0 {
		s.hooks.EntryChanged(top.Parent, top.Name)
		s.publish(key, berth.OpCreate, info)
	}
	return err
}
