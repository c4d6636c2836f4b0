package sync

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"berth"
	"berth/fusefs/index"
)

// makeRoom sees to it that the content under a key can be overwritten: the inode
// it belongs to is stored under its own name first. If that cannot be now, such
// as when two files swapped their names, it is put aside.
func (s *Syncer) makeRoom(ctx context.Context, r index.Remote, chain []index.Ino) error {
	other, err := s.db.Inode(r.Ino)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if stored, err := s.storedElsewhere(&other, r.Key); err != nil || stored {
		return err
	}
	if !slices.Contains(chain, r.Ino) {
		_, err := s.upload(ctx, r.Ino, chain)
		if err != nil && !errors.Is(err, errBusy) {
			return err
		}
		if stored, err := s.storedElsewhere(&other, r.Key); err != nil || stored {
			return err
		}
	}
	return s.putAside(ctx, r)
}

// storedElsewhere says whether an inode needs a key no more: it has no name that
// is stored, or one of them is. Only names count that do not have this key.
func (s *Syncer) storedElsewhere(n *index.Inode, key string) (bool, error) {
	names, err := s.wanted(n)
	if err != nil {
		return false, err
	}
	needs := false
	for _, w := range names {
		if w.key == key {
			continue
		}
		needs = true
		r, ok, err := s.db.Remote(w.key)
		if err != nil {
			return false, err
		}
		if ok && r.ETag != "" && r.Ino == n.Ino && !r.Doomed && r.Intent.Gen == 0 {
			return true, nil
		}
	}
	return !needs, nil
}

// putAside keeps a copy of an object in the history, and the content of its
// inode here if the object is its only place.
func (s *Syncer) putAside(ctx context.Context, r index.Remote) error {
	if n, err := s.db.Inode(r.Ino); err == nil && n.Remote && n.IsFile() {
		if err := s.fetchNow(ctx, r.Ino); err != nil {
			return err
		}
	}
	return s.copyToHistory(ctx, r.Key, r.ETag, versionStamp(r.Stamp, r.LastModified, r.ETag), berth.EndOverwritten)
}
