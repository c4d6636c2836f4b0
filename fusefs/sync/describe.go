package sync

import (
	"context"
	"fmt"
	"io"

	"berth/fusefs/index"
	"berth/fusefs/object"
)

// Describe asks the bucket for the attributes of a Bare inode; its number stays.
// The inode can turn out to be a symlink. Errors are those of Fetch.
func (s *Syncer) Describe(ctx context.Context, ino index.Ino) error {
	n, err := s.db.Inode(ino)
	if err != nil {
		return err
	}
	if !n.Bare {
		return nil
	}
	s.missed(&n, false)
	if n.IsFile() && n.Remote && n.Size <= aheadStat && s.room() {
		return s.fetchNow(ctx, ino) // which is one request too
	}
	return s.describeNow(ctx, ino)
}

// describeNow is Describe of what nobody waits for, always without the content.
func (s *Syncer) describeNow(ctx context.Context, ino index.Ino) error {
	return s.describes.do(ctx, s.ctx, ino, func(ctx context.Context) error { return s.retake(ctx, ino, s.describe) })
}

// describe does one try of Describe.
func (s *Syncer) describe(ctx context.Context, n *index.Inode, r index.Remote) error {
	if !n.Bare {
		return nil
	}
	if r.ETag == "" { // a directory that is only a prefix
		return s.described(n, r, object.Info{}, attributes{mode: defaultDirMode, mtime: n.Mtime, ctime: n.Ctime, foreign: true, foreignAttr: true}, "")
	}
	info, err := s.store.Head(ctx, r.Key)
	if err != nil {
		return err
	}
	s.reached()
	if !sameVersion(r, info) {
		return object.ErrPrecondition
	}
	a := decodeAttributes(info, n.IsDir())
	target := ""
	if a.mode&index.TypeMask == index.TypeSymlink {
		if info.Size > maxTarget {
			a.mode = defaultFileMode
		} else if target, err = s.readTarget(ctx, r); err != nil {
			return err
		}
	}
	return s.described(n, r, info, a, target)
}

func (s *Syncer) readTarget(ctx context.Context, r index.Remote) (string, error) {
	body, _, err := s.store.Get(ctx, r.Key, object.GetOptions{IfMatch: r.ETag})
	if err != nil {
		return "", err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, maxTarget+1))
	if err != nil {
		return "", fmt.Errorf("cannot read symlink %q: %w", r.Key, err)
	}
	return string(b), nil
}

// described writes what a Bare inode turned out to be.
func (s *Syncer) described(n *index.Inode, r index.Remote, info object.Info, a attributes, target string) error {
	return s.updateAndKick(func(b *index.Batch) (index.Ino, error) {
		now, err := s.sameLocked(n, r)
		if err != nil || !now.Bare {
			return 0, err
		}
		return s.describeLocked(b, &now, r, info, a, target)
	})
}

// updateAndKick is Update with an inode to put in line afterwards, if it is not 0.
func (s *Syncer) updateAndKick(do func(b *index.Batch) (index.Ino, error)) error {
	var kick index.Ino
	err := s.db.Update(func(b *index.Batch) (err error) {
		kick, err = do(b)
		return err
	})
	if err == nil && kick != 0 {
		s.sched.kick(kick, 0)
	}
	return err
}

// sameLocked returns an inode as it is inside Update, or errChanged if it or its
// object is not what was looked at.
func (s *Syncer) sameLocked(n *index.Inode, r index.Remote) (index.Inode, error) {
	now, err := s.db.Inode(n.Ino)
	if err != nil {
		return now, err
	}
	cur, _, err := s.db.Remote(r.Key)
	if err != nil {
		return now, err
	}
	if now.Gen != n.Gen || cur.ETag != r.ETag || r.ETag != "" && (cur.Ino != r.Ino || cur.Gen != r.Gen) {
		return now, errChanged
	}
	return now, nil
}

// describeLocked fills a Bare inode, its names and its Remote; the caller's changes
// of now are written with it. now can become another inode; kick is that of
// identifyLocked.
func (s *Syncer) describeLocked(b *index.Batch, now *index.Inode, r index.Remote, info object.Info, a attributes, target string) (kick index.Ino, err error) {
	was := *now
	s.setAttributes(now, a)
	now.Bare = false
	now.Stamp, now.AttrStamp = a.own(), a.ownAttr()
	if target != "" {
		now.Target, now.Size, now.Remote = target, int64(len(target)), false
	}
	if kick, err = s.identifyLocked(b, now, r.Key, a); err != nil {
		return 0, err
	}
	b.PutInode(*now)
	if err := s.retypeLocked(b, &was, now); err != nil || r.ETag == "" {
		return kick, err
	}
	cur, ok, err := s.db.Remote(r.Key)
	if err != nil || !ok {
		return kick, err
	}
	cur.LastModified = unixNano(info.LastModified)
	cur.Ino, cur.Gen = now.Ino, gen(now)
	cur.Stamp, cur.AttrStamp = a.own(), a.ownAttr()
	b.PutRemote(cur)
	return kick, nil
}

// retypeLocked writes the type that is known now into the directory entries, and
// the number if it is another.
func (s *Syncer) retypeLocked(b *index.Batch, was, now *index.Inode) error {
	if was.IsDir() {
		return nil
	}
	names, err := s.db.Names(was)
	if err != nil {
		return err
	}
	for _, name := range names {
		if now.Ino != was.Ino {
			b.Unlink(name.Parent, name.Name, was.Ino, was.Mode&index.TypeMask)
		}
		b.Link(name.Parent, name.Name, now.Ino, now.Mode&index.TypeMask)
	}
	return nil
}
