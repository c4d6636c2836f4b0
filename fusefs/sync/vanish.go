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
		b.Unlink(n.Parent, n.Name, dir)
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
