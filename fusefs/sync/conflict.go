package sync

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// settleIntent finds out what became of an announced request.
func (s *Syncer) settleIntent(ctx context.Context, r index.Remote, n *index.Inode, w want) error {
	info, err := s.store.Head(ctx, r.Key)
	if errors.Is(err, fs.ErrNotExist) {
		return s.setRemote(r, index.Remote{Key: r.Key})
	}
	if err != nil {
		return err
	}
	s.reached()
	return s.judge(ctx, r, n, w, info)
}

// setRemote replaces what is known of a key, if it still is what was looked at.
// A Remote that says nothing is removed.
func (s *Syncer) setRemote(old, now index.Remote) error {
	return ignoreChanged(s.db.Update(func(b *index.Batch) error {
		if err := s.stillIs(old); err != nil {
			return err
		}
		if now == (index.Remote{Key: now.Key}) {
			b.DeleteRemote(now.Key)
		} else {
			b.PutRemote(now)
		}
		return nil
	}))
}

// stillIs returns errChanged, inside Update, if what is known of a key is not what
// was looked at. An unknown key is a Remote with nothing but its key.
func (s *Syncer) stillIs(r index.Remote) error {
	cur, ok, err := s.db.Remote(r.Key)
	if err != nil {
		return err
	}
	if !ok {
		cur = index.Remote{Key: r.Key}
	}
	if cur != r {
		return errChanged
	}
	return nil
}

// stillWanted is stillIs for what is about to be noted of an inode's key: that the
// name has the key no more is a change too. Who took the name away doomed what was
// known of the key, which a note of what was seen there would undo.
func (s *Syncer) stillWanted(r index.Remote, n *index.Inode, w want) error {
	ok, err := s.isWanted(n.Ino, w, n.IsDir())
	if err != nil {
		return err
	}
	if !ok {
		return errChanged
	}
	return s.stillIs(r)
}

// arrived says whether an object is the one that was announced.
func (s *Syncer) arrived(r index.Remote, info object.Info, a attributes) (bool, error) {
	i := r.Intent
	if i.Gen == 0 {
		return false, nil
	}
	if !i.AttrStamp.IsZero() || !i.Stamp.IsZero() {
		return a.own() == i.Stamp && a.ownAttr() == i.AttrStamp, nil
	}
	// A copy of a foreign object has no stamp to tell it by, but its source's content.
	held, err := s.db.Holders(i.Ino)
	if err != nil {
		return false, err
	}
	for _, h := range held {
		if h.Key != r.Key && h.Gen == i.Gen && h.ETag == info.ETag && h.Size == info.Size {
			return true, nil
		}
	}
	return false, nil
}

// judge decides between an inode that should be stored under a key and the object
// that is there.
func (s *Syncer) judge(ctx context.Context, r index.Remote, n *index.Inode, w want, info object.Info) error {
	a := decodeAttributes(info, n.IsDir())
	ours, err := s.arrived(r, info, a)
	if err != nil {
		return err
	}
	if ours {
		return s.stored(r.Key, info)
	}
	seen := r
	seen.Intent = index.Intent{}
	if r.ETag != "" && sameObject(r, info, a) {
		seen.LastModified = unixNano(info.LastModified)
		return s.setRemote(r, seen) // the request did not arrive
	}
	s.clock.Observe(a.own())
	s.clock.Observe(a.ownAttr())
	seen = index.Remote{Key: r.Key, ETag: info.ETag, LastModified: unixNano(info.LastModified), Size: info.Size,
		Stamp: a.stamp, AttrStamp: a.attrStamp}
	if n.IsDir() {
		return s.judgeDir(r, seen, n, w, a)
	}
	switch order := n.Stamp.Compare(a.stamp); {
	case order == 0:
		seen.Ino, seen.Gen = n.Ino, gen(n)
		return s.mergeAttributes(r, seen, n, w, a)
	case order > 0 && a.own() == r.Stamp && info.ETag == r.ETag:
		return s.mergeAttributes(r, seen, n, w, a) // what ours was made from
	case order > 0:
		theirs := versionStamp(a.own(), unixNano(info.LastModified), info.ETag)
		if err := s.copyToHistory(ctx, r.Key, info.ETag, theirs, berth.EndLost); err != nil {
			return err
		}
		return s.mergeAttributes(r, seen, n, w, a)
	}
	return s.yield(ctx, r, n, w, info, a)
}

// sameVersion says whether an object is the one that a Remote tells of. Equal
// content has an equal ETag, so that the time counts too where it is known.
func sameVersion(r index.Remote, info object.Info) bool {
	if r.ETag != info.ETag {
		return false
	}
	modified := unixNano(info.LastModified)
	return r.LastModified == 0 || modified == 0 || r.LastModified == modified
}

// notSince says whether an object is no later than our own PUT of it, whose answer
// did not tell the time that the store gave it: a later one with the same content
// is somebody else's change of the attributes.
func (s *Syncer) notSince(r index.Remote, info object.Info) bool {
	if r.LastModified != 0 || r.StoredAt == 0 || info.LastModified.IsZero() {
		return true
	}
	answered := time.Unix(0, r.StoredAt).Add(s.health.storeAhead())
	return !info.LastModified.After(answered.Add(time.Second)) // the difference of the clocks is known to a second
}

// sameObject is sameVersion for an object whose attributes are known: these do not
// count in the ETag.
func sameObject(r index.Remote, info object.Info, a attributes) bool {
	if !sameVersion(r, info) {
		return false
	}
	return r.Stamp.IsZero() && r.AttrStamp.IsZero() || a.own() == r.Stamp && a.ownAttr() == r.AttrStamp
}

// judgeDir is judge for a directory, which has attributes only.
func (s *Syncer) judgeDir(r, seen index.Remote, n *index.Inode, w want, a attributes) error {
	seen.Ino, seen.Gen, seen.Stamp = n.Ino, gen(n), n.Stamp
	return s.mergeAttributes(r, seen, n, w, a)
}

// mergeAttributes notes the object that was seen under a name and takes over its
// attributes if they were changed later than ours.
func (s *Syncer) mergeAttributes(r, seen index.Remote, n *index.Inode, w want, a attributes) error {
	changed := false
	err := ignoreChanged(s.db.Update(func(b *index.Batch) error {
		changed = false
		if err := s.stillWanted(r, n, w); err != nil {
			return err
		}
		now, err := s.db.Inode(n.Ino)
		if err != nil {
			return err
		}
		if a.ownAttr().Compare(now.AttrStamp) > 0 && now.Mode&index.TypeMask == a.mode&index.TypeMask {
			mtime, ctime := now.Mtime, now.Ctime
			s.setAttributes(&now, a)
			if now.Stamp.Compare(a.stamp) > 0 {
				now.Mtime, now.Ctime = mtime, ctime // they go with the content
			}
			now.AttrStamp = a.attrStamp
			b.PutInode(now)
			changed = true
		}
		b.PutRemote(seen)
		return nil
	}))
	if err == nil && changed {
		s.hooks.InodeChanged(n.Ino)
	}
	return err
}

// setAttributes takes over what an object says of its file, except its content.
func (s *Syncer) setAttributes(n *index.Inode, a attributes) {
	n.Mode = a.mode
	n.Mtime, n.Ctime, n.Atime = a.mtime, a.ctime, a.atime
	n.Xattrs = a.xattrs
	if s.owner && a.owned {
		n.UID, n.GID = a.uid, a.gid
	}
}

// yield gives way to an object that is later than what was written here, which
// goes to the history. A file that is being written to does not give way: what
// is written now is later still.
func (s *Syncer) yield(ctx context.Context, r index.Remote, n *index.Inode, w want, info object.Info, a attributes) error {
	if s.hooks.Busy(n.Ino) {
		return errBusy
	}
	if !n.Remote {
		if err := s.putToHistory(ctx, n, w.key); err != nil {
			return err
		}
	}
	c := incoming{want: w, info: info, attr: a, described: a.mode&index.TypeMask != index.TypeSymlink}
	return s.replace(r, n, c, true)
}

// putToHistory keeps the local content of an inode that lost against another
// writer.
func (s *Syncer) putToHistory(ctx context.Context, n *index.Inode, key string) error {
	src, err := s.source(n)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing is left to keep
	}
	if err != nil {
		return err
	}
	defer src.close()
	_, err = s.store.Put(ctx, historyKey(key, n.Stamp, berth.EndLost), src, src.size, object.PutOptions{Metadata: encodeMetadata(n, key, s.owner)})
	if src.moved.Load() {
		return errBusy
	}
	return err
}

// own and ownAttr are the stamps that berth wrote; zero for foreign objects.
func (a attributes) own() index.Stamp {
	if a.foreign {
		return index.Stamp{}
	}
	return a.stamp
}

func (a attributes) ownAttr() index.Stamp {
	if a.foreignAttr {
		return index.Stamp{}
	}
	return a.attrStamp
}
