package sync

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"berth/fusefs/index"
	"berth/fusefs/object"
)

const movePage = 256 // keys in one commit

// moveLoop carries out directory renames until ctx ends.
func (s *Syncer) moveLoop(ctx context.Context) {
	for tries := 0; ctx.Err() == nil; {
		s.sched.lull(ctx)
		err := s.moveAll(ctx)
		wait := doomIdle
		if err == nil {
			tries = 0
		} else if ctx.Err() == nil {
			s.failed(err)
			wait = backoff(tries, firstOutage, mostOutage)
			tries++
		}
		sleep(ctx, s.moveWake, wait)
	}
}

func (s *Syncer) moveAll(ctx context.Context) error {
	moves, err := s.db.Moves()
	if err != nil {
		return err
	}
	for _, m := range moves {
		if err := s.move(ctx, m); err != nil {
			return err
		}
		s.changed.notify()
	}
	return nil
}

// move makes the objects of a renamed directory follow it: each key under the old
// prefix is doomed and its inode queued, so that the uploads and deletes do the
// rest. Keys that were never listed become part of the directory first.
func (s *Syncer) move(ctx context.Context, m index.Move) error {
	if err := s.adoptUnknown(ctx, m); err != nil {
		return err
	}
	for after := ""; ; {
		page, err := s.db.RemotesAfter(m.OldPrefix, after, movePage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		queued, err := s.doomPrefix(page)
		if err != nil {
			return err
		}
		for _, ino := range queued {
			s.sched.kick(ino, 0)
		}
		after = page[len(page)-1].Key
	}
	err := s.db.Update(func(b *index.Batch) error { b.DeleteMove(m.Seq); return nil })
	s.KickDoomed()
	return err
}

// inOldPlace says whether a key was part of a directory whose rename has not
// looked at all its keys yet.
func (s *Syncer) inOldPlace(key string) (bool, error) {
	moves, err := s.db.Moves()
	for _, m := range moves {
		if strings.HasPrefix(key, m.OldPrefix) {
			return true, err
		}
	}
	return false, err
}

// doomPrefix dooms the keys of a page that no name has any more and queues the
// inodes that have to be stored elsewhere.
func (s *Syncer) doomPrefix(page []index.Remote) (queued []index.Ino, err error) {
	err = s.db.Update(func(b *index.Batch) error {
		queued = nil
		at := s.now().UnixNano()
		for _, seen := range page {
			r, ok, err := s.db.Remote(seen.Key)
			if err != nil {
				return err
			}
			p, ferr := s.find(seen.Key)
			if ferr != nil {
				return ferr
			}
			if !ok || p.holds() && p.entry.Ino == r.Ino {
				continue
			}
			if p.holds() {
				b.Enqueue(p.entry.Ino, at)
				queued = append(queued, p.entry.Ino)
			} else if !r.Doomed {
				r.Doomed = true
				b.PutRemote(r)
			}
			for _, ino := range []index.Ino{r.Ino, r.Intent.Ino} {
				if _, err := s.db.Inode(ino); err == nil {
					b.Enqueue(ino, at)
					queued = append(queued, ino)
				} else if !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
		return nil
	})
	return queued, err
}

// adoptUnknown takes objects under the old prefix of a move that the index does
// not know, since their directory was never listed, into the renamed directory.
func (s *Syncer) adoptUnknown(ctx context.Context, m index.Move) error {
	if n, err := s.db.Inode(m.Dir); errors.Is(err, fs.ErrNotExist) || err == nil && !n.IsDir() {
		return nil
	} else if err != nil {
		return err
	}
	if !holdsKeys(m.OldPrefix) {
		return nil
	}
	o := object.ListOptions{Prefix: m.OldPrefix}
	for {
		seen := s.touched.begin()
		page, err := s.store.List(ctx, o)
		if err == nil {
			err = s.adoptPage(m, page.Objects, seen)
		}
		s.touched.end(seen)
		if err != nil {
			return err
		}
		if page.Next == "" {
			return nil
		}
		o.After = page.Next
	}
}

// adoptPage adds the unknown objects of a page, one in each commit.
func (s *Syncer) adoptPage(m index.Move, objects []object.Info, seen *page) error {
	for _, info := range objects {
		if _, known, err := s.db.Remote(info.Key); err != nil {
			return err
		} else if known || CheckKey(info.Key) != nil {
			continue
		}
		var queued index.Ino
		err := s.db.Update(func(b *index.Batch) error {
			queued = 0
			_, known, err := s.db.Remote(info.Key)
			if err != nil || known || s.touched.has(seen, info.Key) {
				return err
			}
			queued, err = s.adoptLocked(b, m, info)
			return err
		})
		if err != nil {
			return err
		}
		if queued != 0 {
			s.sched.kick(queued, 0)
		}
	}
	return nil
}

// adoptLocked takes one unknown object into the renamed directory and queues its
// inode, to be stored where that is now.
func (s *Syncer) adoptLocked(b *index.Batch, m index.Move, info object.Info) (queued index.Ino, err error) {
	p, err := s.find(info.Key)
	if err != nil {
		return 0, err
	}
	path := strings.TrimPrefix(info.Key, m.OldPrefix)
	var n index.Inode
	if strings.HasSuffix(path, "/") || path == "" {
		n, err = s.markLocked(b, m.Dir, path)
	} else {
		n, _, err = s.addLocked(b, m.Dir, path, info)
	}
	if err != nil || n.Ino == 0 {
		return 0, err
	}
	r := (&incoming{want: want{key: info.Key}, info: info}).remote(&n)
	r.Stamp, r.AttrStamp = index.Stamp{}, index.Stamp{} // of the inode, maybe; a LIST tells none
	r.Doomed = !p.holds()                               // a new file of this name waits for the rename, see step
	b.PutRemote(r)
	b.Enqueue(n.Ino, s.now().UnixNano())
	return n.Ino, nil
}

// addLocked makes a Bare file with the content of an object at a path below a
// directory, and the directories on the way; top is the first name it made. It
// returns a zero Inode when the path has something already. It is called inside
// Update, once per batch, since it does not see what the batch made.
func (s *Syncer) addLocked(b *index.Batch, dir index.Ino, path string, info object.Info) (n index.Inode, top index.Name, err error) {
	parent, err := s.db.Inode(dir)
	if err != nil {
		return n, top, err
	}
	names := strings.Split(path, "/")
	for i, name := range names {
		last := i == len(names)-1
		if top.Parent == 0 {
			e, err := s.db.Lookup(parent.Ino, name)
			if err == nil && !last && e.Type == index.TypeDir {
				if parent, err = s.db.Inode(e.Ino); err != nil {
					return n, top, err
				}
				continue
			}
			if err == nil || !errors.Is(err, fs.ErrNotExist) {
				return n, top, err
			}
			top = index.Name{Parent: parent.Ino, Name: name}
		}
		if last {
			n, err = s.newFileLocked(b, &parent, name, info)
		} else {
			parent, err = s.newDirLocked(b, &parent, name)
		}
		if err != nil {
			return n, top, err
		}
	}
	return n, top, nil
}

// newFileLocked makes a Bare file for an object; its Remote is the caller's. The
// parent may be new in the same batch.
func (s *Syncer) newFileLocked(b *index.Batch, parent *index.Inode, name string, info object.Info) (index.Inode, error) {
	n, err := s.newLocked(parent)
	if err != nil {
		return n, err
	}
	n.Mode = defaultFileMode
	s.fill(&n, &incoming{info: info})
	n.Unseen = true
	b.AddInode(n)
	b.Link(parent.Ino, name, n.Ino, 0)
	return n, nil
}

// newDirLocked makes a directory that is only a prefix, not listed yet.
func (s *Syncer) newDirLocked(b *index.Batch, parent *index.Inode, name string) (index.Inode, error) {
	n, err := s.newLocked(parent)
	if err != nil {
		return n, err
	}
	n.Parent, n.Name, n.Below = parent.Ino, name, index.UnknownBelow
	n.Mode = defaultDirMode
	n.Mtime = s.now().Truncate(time.Second).UnixNano()
	n.Ctime = n.Mtime
	b.AddInode(n)
	b.Link(parent.Ino, name, n.Ino, index.TypeDir)
	return n, nil
}
