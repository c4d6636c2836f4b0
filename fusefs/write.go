package fusefs

import (
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"berth/fusefs/cache"
	"berth/fusefs/index"
)

// racy is how close to now a file's mtime may be before a later change could
// leave it as it is: kernels before 6.13 give times in steps of a clock tick.
const racy = 20 * time.Millisecond

// beginWriteLocked makes an inode one that may be written to, which is journalled
// before the caller gets to write. With trunc its content is thrown away. An
// inode whose content is not here is errRemote, unless trunc is set.
func (f *FS) beginWriteLocked(o *openFile, trunc bool) error {
	if o.marked && trunc && !o.inUseLocked() && !o.base.Swap {
		f.settleLocked(o) // so that what was closed can be kept as old content
	}
	if !o.marked {
		if err := f.markLocked(o, trunc); err != nil {
			return err
		}
	} else if trunc && !o.base.Fresh {
		m := o.base
		m.Fresh = true
		if err := f.remarkLocked(o, m); err != nil {
			return err
		}
	}
	if !trunc {
		return nil
	}
	return f.whileThawedLocked(o, func() error {
		w, err := f.writableLocked(o)
		if err == nil {
			err = w.Truncate(0)
		}
		if err == nil && o.blocks != nil {
			err = f.leaveBlocksLocked(o)
		}
		f.recountLocked(o)
		return err
	})
}

func (f *FS) markLocked(o *openFile, trunc bool) error {
	n, err := f.inode(o.ino)
	if err != nil {
		return err
	}
	if n.Remote && !trunc {
		return errRemote
	}
	if err := f.setAsideLocked(o, &n); err != nil {
		return err
	}
	m := index.OpenMark{Mtime: f.now().UnixNano(), Fresh: true}
	if !n.Remote {
		st, err := f.alignLocked(o, &n)
		if err != nil {
			return err
		}
		m = index.OpenMark{Size: st.Size, Mtime: st.Mtime, Ctime: st.Ctime}
		m.Fresh = trunc && st.Size > 0 || f.now().UnixNano()-st.Mtime < int64(racy)
		m.Swap = trunc && st.Size > 0 && o.r == nil && f.freezer.get(o.ino) == nil && f.cache.Unused(o.ino)
	}
	err = f.db.Update(func(b *index.Batch) error {
		cur, err := f.db.Inode(o.ino)
		if err != nil {
			f.db.CountOpen(n.Ino, n.Tree, n.Size)
			m.Swap = false
			return nil // unlinked meanwhile: an orphan needs no journal
		}
		b.CountOpen(&cur, false)
		if cur.Remote {
			if !trunc {
				return errRemote
			}
			cur.Remote = false
			b.PutInode(cur)
		}
		if u, _, err := f.db.Unsynced(o.ino); err != nil || u.Old != 0 {
			m.Swap = false // there is old content already
		}
		if m.Swap {
			b.MarkUnsynced(o.ino, index.Unsynced{Old: o.ino})
		}
		b.MarkOpen(o.ino, m)
		return nil
	})
	if err != nil {
		return err
	}
	o.setMarked(f, m)
	switch {
	case m.Swap:
		f.replaced.add(o.ino, o.ino, n.Gen)
		return f.cache.Renew(o.ino, n.Gen)
	case !n.Remote:
		return nil
	}
	file, err := f.cache.Create(o.ino)
	if err != nil {
		return err
	}
	return file.Close()
}

// setMarked notes the mark of the index.
func (o *openFile) setMarked(f *FS, m index.OpenMark) {
	o.marked, o.base = true, m
	waits := o.pace.waits
	o.pace = newPace(time.Now())
	o.pace.waits = waits
	f.opens.retain(o)
	f.opens.meter(o)
}

// remarkLocked replaces the mark.
func (f *FS) remarkLocked(o *openFile, m index.OpenMark) error {
	err := f.db.Update(func(b *index.Batch) error {
		if _, err := f.db.Inode(o.ino); err == nil {
			b.MarkOpen(o.ino, m)
		}
		return nil
	})
	if err == nil {
		o.base = m
	}
	return err
}

// alignLocked gives the content file the inode's mtime, if it has another as
// after hydration, so that the content file's may be taken over at any later
// time without the inode's going back.
func (f *FS) alignLocked(o *openFile, n *index.Inode) (cache.Stat, error) {
	st, err := f.statLocked(o)
	if errors.Is(err, fs.ErrNotExist) {
		err = f.lostLocked(o)
	}
	if err != nil || st.Mtime == n.Mtime {
		return st, err
	}
	if err := f.cache.SetMtime(o.ino, o.r, n.Mtime); err != nil {
		return st, err
	}
	return f.statLocked(o)
}

// withWriter runs a change of content that this process makes on behalf of a
// caller that may have no handle. It counts as a writer meanwhile.
func (f *FS) withWriter(c caller, ino index.Ino, trunc bool, do func(o *openFile, fd int) error) error {
	o := f.opens.get(ino)
	defer f.opens.put(o, 1)
	what := needAll
	if trunc {
		what = needNone
	}
	if err := f.lockLocal(c, o, what); err != nil {
		return err
	}
	err := f.beginWriteLocked(o, trunc)
	if err == errRemote { // its content was lost, and is to be fetched again
		o.mu.Unlock()
		if err = f.lockLocal(c, o, what); err != nil {
			return err
		}
		err = f.beginWriteLocked(o, trunc)
	}
	defer o.mu.Unlock()
	if err != nil {
		return err
	}
	err = f.whileThawedLocked(o, func() error {
		w, err := f.writableLocked(o)
		if err == nil {
			err = do(o, int(w.Fd()))
		}
		return err
	})
	if o.writers == 0 {
		f.settleSoonLocked(o)
	}
	return err
}

// truncate gives a file another size.
func (f *FS) truncate(c caller, ino index.Ino, size int64) error {
	return f.withWriter(c, ino, size == 0, func(o *openFile, fd int) error {
		return f.growingLocked(o, size, func() error { return unix.Ftruncate(fd, size) })
	})
}
