package sync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"berth/fusefs/index"
	"berth/fusefs/object"
)

// errChanged ends an Update whose premises do not hold any more.
var errChanged = errors.New("the index changed meanwhile")

// send writes an inode under one of its names. It returns nil when the state of
// the name has changed and is to be looked at again.
func (s *Syncer) send(ctx context.Context, n *index.Inode, w want, r index.Remote, chain []index.Ino) error {
	if n.IsDir() && n.Bare {
		return s.Describe(ctx, n.Ino) // what its marker says goes along
	}
	if r.ETag != "" && s.revalidate > 0 {
		if same, err := s.lookFirst(ctx, n, w, r); err != nil || !same {
			return err
		}
	}
	if sameContent(n, r) {
		if done, err := s.sendAttributes(ctx, n, w, r, chain); done || err != nil {
			return err
		}
	}
	if n.IsFile() && (n.Remote || n.Size >= deltaFrom || s.hooks.Busy(n.Ino)) {
		from, ok, err := s.holder(n, w.key)
		if err != nil {
			return err
		}
		if ok && r.ETag == "" {
			return s.copyHeld(ctx, n, w, r, from, chain)
		}
		if n.Remote {
			return s.fetchNow(ctx, n.Ino)
		}
	}
	if err := s.keepOverwritten(ctx, r, n); err != nil {
		return err
	}
	src, err := s.source(n)
	if errors.Is(err, fs.ErrNotExist) && n.IsFile() {
		return s.lostContent(n)
	}
	if err != nil {
		return err
	}
	defer src.close()
	return s.sendContent(ctx, n, w, r, src, chain)
}

// sendContent writes content and attributes.
func (s *Syncer) sendContent(ctx context.Context, n *index.Inode, w want, r index.Remote, src *source, chain []index.Ino) error {
	d, err := s.delta(ctx, n, r, src)
	if err != nil {
		return err
	}
	if err := s.announce(n, w, r); err != nil {
		return ignoreChanged(err)
	}
	o := object.PutOptions{IfMatch: r.ETag, IfNoneMatch: r.ETag == "", Metadata: encodeMetadata(n, w.key, s.owner)}
	if n.IsDir() {
		o.ContentType = dirContentType
	}
	info, err := s.put(ctx, r, src, src.size, o, d.keep)
	if src.moved.Load() {
		return errBusy // the Intent tells the next turn to look what became of it
	}
	if err := s.answered(ctx, n, w, info, err, chain); err != nil {
		return err
	}
	return s.noteDigests(n.Ino, w.key, d.now)
}

// lookFirst asks for an object that is about to be overwritten where others write
// too. If only its attributes were changed its ETag is the same, so that the
// condition of the PUT would not notice.
func (s *Syncer) lookFirst(ctx context.Context, n *index.Inode, w want, r index.Remote) (same bool, err error) {
	info, err := s.store.Head(ctx, w.key)
	if errors.Is(err, fs.ErrNotExist) {
		return false, s.setRemote(r, index.Remote{Key: r.Key})
	}
	if err != nil {
		return false, err
	}
	if sameObject(r, info, decodeAttributes(info, n.IsDir())) {
		return true, nil
	}
	return false, s.judge(ctx, r, n, w, info)
}

const dirContentType = "application/x-directory"

// answered takes the answer to an announced PUT or Copy.
func (s *Syncer) answered(ctx context.Context, n *index.Inode, w want, info object.Info, err error, chain []index.Ino) error {
	switch {
	case err == nil:
		s.reached()
		if err := s.stored(w.key, info); err != nil {
			return err
		}
		return s.measureSkew(ctx, w.key, info)
	case errors.Is(err, object.ErrOverlap):
		if err := s.dropIntent(w.key); err != nil {
			return err
		}
		return s.clearOverlap(ctx, w.key, append(chain, n.Ino))
	case errors.Is(err, object.ErrPrecondition):
		return s.refused(ctx, n, w, append(chain, n.Ino))
	}
	return err
}

// refused finds out why the condition of an announced request did not hold.
func (s *Syncer) refused(ctx context.Context, n *index.Inode, w want, chain []index.Ino) error {
	r, _, err := s.db.Remote(w.key)
	if err != nil {
		return err
	}
	if err := s.settleIntent(ctx, r, n, w); err != nil || r.ETag != "" {
		return err
	}
	if r, known, err := s.db.Remote(w.key); err != nil || known && r.ETag != "" {
		return err
	}
	// Nothing should be there and nothing is: such an answer comes from stores
	// that take a directory in the way for an object.
	if err := s.clearOverlap(ctx, w.key, chain); !errors.Is(err, object.ErrOverlap) {
		return err
	}
	return nil
}

// holder returns an object under another key that has the content of an inode's
// generation.
func (s *Syncer) holder(n *index.Inode, except string) (index.Remote, bool, error) {
	all, err := s.db.Holders(n.Ino)
	if err != nil {
		return index.Remote{}, false, err
	}
	for _, r := range all {
		if r.Key != except && r.ETag != "" && r.Gen == gen(n) && r.Intent.Gen == 0 {
			return r, true, nil
		}
	}
	return index.Remote{}, false, nil
}

// gen is the generation of an inode as Remotes have it: never 0, which there
// means none.
func gen(n *index.Inode) uint64 { return max(n.Gen, 1) }

// copyHeld lets the store copy the content of an inode from another of its keys
// to one that is free.
func (s *Syncer) copyHeld(ctx context.Context, n *index.Inode, w want, r, from index.Remote, chain []index.Ino) error {
	info, err := s.store.Head(ctx, w.key)
	if err == nil {
		return s.judge(ctx, r, n, w, info)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.announce(n, w, r); err != nil {
		return ignoreChanged(err)
	}
	o := object.CopyOptions{SourceETag: from.ETag}
	if !n.Bare {
		o.Metadata = encodeMetadata(n, w.key, s.owner)
	}
	info, err = s.store.Copy(ctx, w.key, from.Key, o)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, object.ErrPrecondition) {
		if err := s.dropIntent(w.key); err != nil {
			return err
		}
		return s.followHolder(ctx, from)
	}
	info.Size = from.Size // which not every store tells
	return s.answered(ctx, n, w, info, err, chain)
}

// announce writes the Intent of a request that is about to be sent, if the inode,
// the name and what is known of the key are still what was looked at.
func (s *Syncer) announce(n *index.Inode, w want, r index.Remote) error {
	return s.db.Update(func(b *index.Batch) error {
		now, err := s.db.Inode(n.Ino)
		if errors.Is(err, fs.ErrNotExist) {
			return errChanged
		}
		if err != nil {
			return err
		}
		if now.Gen != n.Gen || now.Stamp != n.Stamp || now.AttrStamp != n.AttrStamp || now.Bare != n.Bare {
			return errChanged
		}
		if err := s.stillWanted(r, n, w); err != nil {
			return err
		}
		cur := r
		cur.Intent = index.Intent{Ino: n.Ino, Gen: gen(n), Stamp: n.Stamp, AttrStamp: n.AttrStamp}
		cur.Doomed = false
		b.PutRemote(cur)
		return nil
	})
}

func ignoreChanged(err error) error {
	if errors.Is(err, errChanged) {
		return nil
	}
	return err
}

// stored notes that the announced object is in the bucket. If its name went or
// changed hands meanwhile the key is doomed or its new owner queued.
func (s *Syncer) stored(key string, info object.Info) error {
	var kick index.Ino
	doomed := false
	err := s.db.Update(func(b *index.Batch) error {
		r, ok, err := s.db.Remote(key)
		if err != nil {
			return err
		}
		if !ok || r.Intent.Gen == 0 {
			return fmt.Errorf("BUG: object %q was stored without an intent", key)
		}
		p, err := s.find(key)
		if err != nil {
			return err
		}
		r = index.Remote{Key: key, ETag: info.ETag, LastModified: unixNano(info.LastModified), Size: info.Size,
			Ino: r.Intent.Ino, Gen: r.Intent.Gen, Stamp: r.Intent.Stamp, AttrStamp: r.Intent.AttrStamp, StoredAt: s.now().UnixNano()}
		switch {
		case !p.holds():
			r.Doomed, doomed = true, true
		case p.entry.Ino != r.Ino:
			b.Enqueue(p.entry.Ino, s.now().UnixNano())
			kick = p.entry.Ino
		}
		b.PutRemote(r)
		s.touched.add(key)
		return nil
	})
	if kick != 0 {
		s.sched.kick(kick, 0)
	}
	if doomed {
		s.KickDoomed()
	}
	return err
}

// measureSkew compares the store's clock with ours now and then, by the time that
// it gives an object which was stored just now.
func (s *Syncer) measureSkew(ctx context.Context, key string, stored object.Info) error {
	now := s.now()
	if !s.health.dueSkew(now) {
		return nil
	}
	info, err := s.store.Head(ctx, key)
	if err != nil || info.ETag != stored.ETag || info.LastModified.IsZero() {
		return nil // it is only a measurement
	}
	if skew := s.health.setSkew(info.LastModified, now); skew.Abs() > maxSkew*time.Millisecond {
		s.log.Warn("The clocks of this machine and the store differ: the later of two writes can be mistaken", "store ahead by", skew)
	}
	return nil
}

// dropIntent forgets an announced request that certainly did not change the key.
func (s *Syncer) dropIntent(key string) error {
	return s.db.Update(func(b *index.Batch) error {
		r, ok, err := s.db.Remote(key)
		if err != nil || !ok {
			return err
		}
		r.Intent = index.Intent{}
		if r.ETag == "" {
			b.DeleteRemote(key)
		} else {
			b.PutRemote(r)
		}
		return nil
	})
}
