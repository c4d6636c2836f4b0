package sync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"strconv"

	"berth/fusefs/index"
)

// An identity is what an object tells of the inode that it is a name of, so that a
// gateway which lost its index gives a file its number again and makes the names of
// one file one inode. It counts under the key that it was written for and nowhere
// else: other tools copy metadata along with the content, and a copy is a file of
// its own.
type identity struct {
	ino   index.Ino // 0 = none is told
	key   string    // keyMark of the object's key
	links uint32    // names of the file, at least 1
}

// keyMark stands for a key in metadata.
func keyMark(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

// encodeIdentity adds what an inode's object under a key tells of it.
func encodeIdentity(m map[string]string, n *index.Inode, key string) {
	m[metaIno] = strconv.FormatUint(uint64(n.Ino), 10)
	if n.IsDir() {
		return
	}
	m[metaKey] = keyMark(key)
	if links := uint64(n.Links) + uint64(n.Others); links > 1 {
		m[metaLinks] = strconv.FormatUint(links, 10)
	}
}

func decodeIdentity(m map[string]string) identity {
	ino, err := strconv.ParseUint(m[metaIno], 10, 64)
	if err != nil || index.Ino(ino) < index.FirstIno || index.Ino(ino) > index.MaxIno {
		return identity{}
	}
	links, err := strconv.ParseUint(m[metaLinks], 10, 32)
	if err != nil {
		links = 1
	}
	return identity{ino: index.Ino(ino), key: m[metaKey], links: uint32(max(links, 1))}
}

// identifyLocked gives an inode that a listing made the number that its object
// tells, or, if that is another name of a file known here, makes it that file. now
// has the attributes of the object already and is the inode to be written after;
// the caller writes its Remote and names. kick is what has to be put in line when
// that is committed, or 0. It is called inside Update.
func (s *Syncer) identifyLocked(b *index.Batch, now *index.Inode, key string, a attributes) (kick index.Ino, err error) {
	told, was := a.identity, now.Ino
	if !now.Unseen {
		return 0, nil
	}
	now.Unseen = false
	if now.IsDir() || told.ino == 0 || told.key != keyMark(key) || a.own().IsZero() || told.ino == was || s.claims.hasIno(was) {
		return 0, nil
	}
	queued, err := s.db.Queued(was)
	if err != nil {
		return 0, err
	}
	there, err := s.db.Inode(told.ino)
	switch {
	case err == nil && sameFile(&there, now):
		joinNames(&there, now, a)
		*now = there
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return 0, err
	case s.db.Gave(told.ino) || s.hooks.Nameless(told.ino):
		return 0, nil // it was another file's, which somebody may still have
	default:
		now.Ino, now.Others = told.ino, told.links-1
	}
	b.DeleteInode(was)
	if !queued {
		return 0, nil
	}
	b.Enqueue(now.Ino, s.now().UnixNano())
	return now.Ino, nil
}

// identifyFirst gives an inode that nobody has asked for its number before its
// objects are written under other keys, which would tell another. What tells none is
// copied as it is.
func (s *Syncer) identifyFirst(ctx context.Context, ino index.Ino) error {
	n, err := s.db.Inode(ino)
	if err != nil || !n.Unseen || n.IsDir() {
		return err
	}
	r, ok, err := s.origin(&n)
	if err != nil || !ok {
		return err
	}
	info, err := s.store.Head(ctx, r.Key)
	if err != nil || info.Metadata[metaKey] != keyMark(r.Key) {
		return err
	}
	return s.Describe(ctx, ino)
}

// sameFile says whether an object that tells the number of an inode holds the
// content that the inode has: one name of a file with several can be older than
// another while they are written.
func sameFile(there, now *index.Inode) bool {
	return there.Tree == now.Tree && there.Mode&index.TypeMask == now.Mode&index.TypeMask && !there.Bare && there.Links > 0 &&
		there.Stamp == now.Stamp && there.Size == now.Size && there.Target == now.Target
}

// joinNames counts one name more of a file and takes over the later attributes.
func joinNames(there, now *index.Inode, a attributes) {
	there.Links++
	there.Others -= min(there.Others, 1)
	if now.AttrStamp.Compare(there.AttrStamp) <= 0 {
		return
	}
	there.Mode, there.UID, there.GID, there.Xattrs = now.Mode, now.UID, now.GID, now.Xattrs
	there.Mtime, there.Ctime, there.Atime, there.AttrStamp = now.Mtime, now.Ctime, now.Atime, now.AttrStamp
	there.Others = a.identity.links - min(a.identity.links, there.Links)
}
