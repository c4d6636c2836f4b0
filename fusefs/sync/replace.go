package sync

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

// An incoming is an object that somebody else wrote, on its way into the index.
type incoming struct {
	want
	info      object.Info
	attr      attributes
	described bool // attr is what a HEAD said, not a guess
	moved     bool // the key is one that the inode had before a rename
}

// typ is the type for the directory entry, 0 when it is not known yet.
func (c *incoming) typ() uint32 {
	if c.described {
		return c.attr.mode & index.TypeMask
	}
	return 0
}

// fill sets what the object tells in an inode.
func (s *Syncer) fill(n *index.Inode, c *incoming) {
	n.Remote, n.Bare = true, !c.described
	n.Size, n.Target = c.info.Size, ""
	n.Stamp, n.AttrStamp = index.Stamp{}, index.Stamp{}
	if c.described {
		s.setAttributes(n, c.attr)
		n.Stamp, n.AttrStamp = c.attr.own(), c.attr.ownAttr()
		return
	}
	n.Mtime = unixNano(c.info.LastModified)
	n.Ctime = n.Mtime
	if !n.IsFile() {
		n.Mode = defaultFileMode
	}
}

// remote is the Remote of an object that holds an inode's generation.
func (c *incoming) remote(n *index.Inode) index.Remote {
	return index.Remote{Key: c.key, ETag: c.info.ETag, LastModified: unixNano(c.info.LastModified), Size: c.info.Size,
		Ino: n.Ino, Gen: gen(n), Stamp: n.Stamp, AttrStamp: n.AttrStamp}
}

// replace gives a name the content of an object that somebody else wrote. An
// inode that is open, has other names or was of another kind keeps its content,
// and the name gets a new inode. errBusy means that it may be written to.
func (s *Syncer) replace(r index.Remote, n *index.Inode, c incoming, publish bool) error {
	split := !c.moved && (s.hooks.InUse(n.Ino) || !n.IsFile())
	err := s.db.Update(func(b *index.Batch) error {
		if err := s.stillIs(r); err != nil {
			return err
		}
		now, err := s.db.Inode(n.Ino)
		if errors.Is(err, fs.ErrNotExist) {
			return errChanged
		}
		if err != nil {
			return err
		}
		if now.Gen != n.Gen || now.Stamp != n.Stamp || now.AttrStamp != n.AttrStamp {
			return errChanged
		}
		if _, open, err := s.db.OpenMark(n.Ino); err != nil || open {
			return errors.Join(err, errBusy)
		}
		if ok, err := s.isWanted(n.Ino, c.want, false); err != nil || !ok && !c.moved {
			return errors.Join(err, errChanged)
		}
		split = split || !c.moved && now.Links > 1
		if split {
			return s.splitLocked(b, &now, &c)
		}
		now.Gen++
		s.fill(&now, &c)
		b.PutInode(now)
		if !c.moved {
			b.Link(c.name.Parent, c.name.Name, now.Ino, c.typ())
		}
		next := c.remote(&now)
		next.Doomed = r.Doomed
		b.PutRemote(next)
		return nil
	})
	if err != nil {
		return ignoreChanged(err)
	}
	if split {
		s.hooks.EntryChanged(c.name.Parent, c.name.Name)
	} else {
		s.hooks.InodeChanged(n.Ino)
	}
	if publish {
		s.publish(c.key, berth.OpWrite, c.info)
	}
	return nil
}

// splitLocked gives a name a new inode with the content of an object. It is
// called inside Update.
func (s *Syncer) splitLocked(b *index.Batch, old *index.Inode, c *incoming) error {
	ino, err := s.db.NewIno()
	if err != nil {
		return err
	}
	b.Unlink(c.name.Parent, c.name.Name, old.Ino, old.Mode&index.TypeMask)
	if old.Links--; old.Links == 0 {
		b.MarkOrphan(old.Ino)
		b.Dequeue(old.Ino)
	}
	b.PutInode(*old)
	n := index.Inode{Ino: ino, Tree: old.Tree, Mode: old.Mode, UID: old.UID, GID: old.GID, Links: 1, Gen: 1}
	s.fill(&n, c)
	n.Unseen = n.Bare
	b.AddInode(n)
	b.Link(c.name.Parent, c.name.Name, ino, c.typ())
	b.PutRemote(c.remote(&n))
	return nil
}

// followHolder takes over what became of an object that turned out not to be what
// its Remote says.
func (s *Syncer) followHolder(ctx context.Context, r index.Remote) error {
	info, err := s.store.Head(ctx, r.Key)
	if errors.Is(err, fs.ErrNotExist) {
		return s.vanish(r, true)
	}
	if err != nil {
		return err
	}
	s.reached()
	n, err := s.db.Inode(r.Ino)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if sameVersion(r, info) || r.Intent.Gen != 0 {
		return nil
	}
	p, err := s.find(r.Key)
	if err != nil {
		return err
	}
	if r.Doomed && r.Gen != gen(&n) {
		return nil // the delete will find out
	}
	if n.IsDir() || r.Gen != gen(&n) {
		return s.setRemote(r, index.Remote{Key: r.Key, ETag: info.ETag, LastModified: unixNano(info.LastModified), Size: info.Size, Doomed: r.Doomed})
	}
	a := decodeAttributes(info, false)
	c := incoming{want: want{name: p.name, key: r.Key}, info: info, attr: a, described: a.mode&index.TypeMask == index.TypeFile,
		moved: p.entry.Ino != r.Ino}
	return s.replace(r, &n, c, true)
}

// publish tells of a change that came from the bucket.
func (s *Syncer) publish(key string, op berth.ChangeOp, info object.Info) {
	root, path, ok, err := s.treeOf(key)
	if err != nil || !ok {
		return
	}
	prefix, _, err := s.trees.prefix(root)
	if err != nil {
		return
	}
	c := berth.Change{Time: s.now(), Tree: strings.TrimSuffix(prefix, "/"), Path: strings.TrimSuffix(path, "/"),
		Op: op, Kind: berth.KindFile, Size: info.Size}
	if strings.HasSuffix(path, "/") {
		c.Kind = berth.KindDir
	}
	if !info.LastModified.IsZero() {
		c.Version = info.ETag + "-" + info.LastModified.UTC().Format(time.RFC3339)
	}
	s.hooks.Publish(c)
}
