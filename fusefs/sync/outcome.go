package sync

import (
	"errors"
	"io/fs"

	"berth"
	"berth/fusefs/index"
)

// act does what a committed batch found to do: the rest of the merge, and the
// hooks.
func (s *Syncer) act(l *listing, out outcome) error {
	for _, f := range out.changed {
		r, ok, err := s.db.Remote(f.info.Key)
		if err != nil {
			return err
		}
		n, err := s.db.Inode(r.Ino)
		if !ok || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		c := incoming{want: want{name: index.Name{Parent: l.dir, Name: f.name}, key: f.info.Key}, info: f.info}
		if err := s.replace(r, &n, c, true); err != nil && !errors.Is(err, errBusy) {
			return err
		}
	}
	for _, f := range out.covered {
		if err := s.cover(l, f); err != nil {
			return err
		}
	}
	for _, ino := range out.touched {
		s.hooks.InodeChanged(ino)
	}
	if !l.publish {
		return nil
	}
	for _, f := range out.created {
		s.hooks.EntryChanged(l.dir, f.name)
		key := l.prefix + f.name
		if f.dir {
			key += "/"
		}
		s.publish(key, berth.OpCreate, f.info)
	}
	return nil
}

// cover lets a directory take the name of a file that is clean: in the bucket
// both exist, and the directory wins.
func (s *Syncer) cover(l *listing, f found) error {
	l.hidden++
	key := l.prefix + f.name
	r, known, err := s.db.Remote(key)
	if err != nil || !known || r.Doomed {
		return err
	}
	if pending, err := s.pending(r.Ino); err != nil || pending {
		return err
	}
	if err := s.vanish(r, l.publish); err != nil {
		return err
	}
	err = s.db.Update(func(b *index.Batch) error {
		_, err := s.db.Lookup(l.dir, f.name)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		_, err = s.newDirLocked(b, &l.inode, f.name)
		return err
	})
	if err == nil {
		s.hooks.EntryChanged(l.dir, f.name)
	}
	return err
}
