package sync

import (
	"errors"
	"io/fs"
	"strings"

	"berth/fusefs/index"
)

// markLocked makes the directory at a path below another ("" = that itself) one
// with a marker, which a LIST has told of, and the directories on the way. It
// returns a zero Inode when the path has something else. It is called inside
// Update, once per batch, as addLocked.
func (s *Syncer) markLocked(b *index.Batch, dir index.Ino, path string) (index.Inode, error) {
	n, err := s.db.Inode(dir)
	if err != nil || path == "" {
		return n, err
	}
	made := false
	for name := range strings.SplitSeq(strings.TrimSuffix(path, "/"), "/") {
		var e index.Entry
		if !made {
			e, err = s.db.Lookup(n.Ino, name)
		}
		switch {
		case made || errors.Is(err, fs.ErrNotExist):
			made = true
			n, err = s.newDirLocked(b, &n, name)
		case err == nil && e.Type != index.TypeDir:
			return index.Inode{}, nil
		case err == nil:
			n, err = s.db.Inode(e.Ino)
		}
		if err != nil {
			return index.Inode{}, err
		}
	}
	if !n.Explicit {
		n.Explicit, n.Bare = true, true
		b.PutInode(n)
	}
	return n, nil
}
