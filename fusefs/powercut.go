package fusefs

import (
	"errors"
	"fmt"
	"io/fs"

	"berth/fusefs/cache"
	"berth/fusefs/index"
)

// A cutRecovery looks at what a stop of the machine may have left in any order on
// the disk. The index is as it was at some moment after the last sync; content
// files may be older or newer, whole or not. What it decides:
//
//   - Content that took the place of other content and is not known to be on the
//     disk goes back to that.
//   - Other content that is not known to be on the disk is fetched again if the
//     bucket has it. If not, what is there is taken for what was written last, as
//     any local file system does.
type cutRecovery struct {
	*FS
	marks    map[index.Ino]index.OpenMark
	unsynced map[index.Ino]index.Unsynced
	done     map[index.Ino]bool

	dropped, restored, kept, lost int // files
}

// recoverCut does it. stale says that the index may be older than the bucket: then
// all directories are listed again behind it.
func (f *FS) recoverCut(marks map[index.Ino]index.OpenMark, stale bool) error {
	r := &cutRecovery{FS: f, marks: marks, done: make(map[index.Ino]bool)}
	var err error
	if r.unsynced, err = f.db.AllUnsynced(); err != nil {
		return err
	}
	for _, step := range []func() error{r.olds, r.replacements, r.open, r.settled, r.newer} {
		if err := step(); err != nil {
			return err
		}
	}
	if len(r.done) > 0 {
		f.log.Warn("The machine stopped: looked at content that may not have reached the disk", "fetched again", r.dropped,
			"put back", r.restored, "kept", r.kept, "incomplete", r.lost)
	}
	if stale {
		return f.sync.Relist()
	}
	return nil
}

// olds restores the content of files that were truncated, unless what was written
// then is on the disk.
func (r *cutRecovery) olds() error {
	olds, err := r.cache.Olds()
	if err != nil {
		return err
	}
	for ino, gen := range olds {
		n, err := r.db.Inode(ino)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed with the rest
		}
		if err != nil {
			return err
		}
		if r.unsynced[ino].Old != ino && (n.Gen > gen || r.marks[ino].Swap) {
			continue
		}
		if err := r.cache.Restore(ino, gen); err != nil {
			return err
		}
		if err := r.putBack(&n, n.Gen > gen); err != nil {
			return err
		}
	}
	return nil
}

// replacements gives files that took the place of others by a rename their content.
func (r *cutRecovery) replacements() error {
	for ino, u := range r.unsynced {
		if u.Old == 0 || u.Old == ino || r.done[ino] {
			continue
		}
		n, err := r.db.Inode(ino)
		if errors.Is(err, fs.ErrNotExist) || err == nil && n.Remote {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := r.cache.Stat(u.Old); err != nil {
			continue // it was only in the bucket
		}
		if err := r.cache.Take(ino, u.Old); err != nil {
			return err
		}
		if err := r.putBack(&n, true); err != nil {
			return err
		}
	}
	return nil
}

// putBack notes what a content file holds that was put back. If the generation
// that is given up had settled the bucket may have it: then that is taken.
func (r *cutRecovery) putBack(n *index.Inode, settled bool) error {
	r.done[n.Ino] = true
	r.restored++
	if settled {
		if ok, err := r.remote(n.Ino); err != nil || ok {
			return err
		}
	}
	st, err := r.cache.Stat(n.Ino)
	if err != nil {
		return err
	}
	if !settled && st.Size == n.Size {
		return r.db.Update(func(b *index.Batch) error {
			b.ClearOpen(n.Ino)
			b.MarkUnsynced(n.Ino, index.Unsynced{})
			return nil
		})
	}
	return r.giveWay(n.Ino, st)
}

// giveWay makes what a content file holds a generation that is earlier than what
// it had by the index, so that this comes back if the bucket has got it.
func (r *cutRecovery) giveWay(ino index.Ino, st cache.Stat) error {
	if err := r.sync.Disown(ino); err != nil {
		return err
	}
	return r.adopt(ino, st, earlier)
}

// earlier and later return a stamp next to another, with none of the clock's
// between them.
func earlier(s index.Stamp) index.Stamp {
	return index.Stamp{Time: max(s.Time, 1) - 1, Gateway: tie(s.Gateway)}
}

func later(s index.Stamp) index.Stamp { return index.Stamp{Time: s.Time, Gateway: tie(s.Gateway)} }

// tie returns a name that sorts next after a gateway's.
func tie(gateway string) string {
	if len(gateway) < 16 {
		gateway += "0"
	}
	return gateway
}

// adopt makes what a content file holds a new generation. Its stamp is next to
// the index's: what the bucket may have got since then, and the index forgot, is
// later than that and whole.
func (r *cutRecovery) adopt(ino index.Ino, st cache.Stat, order func(index.Stamp) index.Stamp) error {
	return r.update(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		adoptStat(n, st)
		n.Gen++
		n.Stamp = order(n.Stamp)
		t.ClearOpen(ino)
		t.MarkUnsynced(ino, index.Unsynced{})
		t.enqueue(ino)
		return nil
	})
}

// open settles the files that were open for writing.
func (r *cutRecovery) open() error {
	for ino := range r.marks {
		if r.done[ino] {
			continue
		}
		var err error
		if _, unsynced := r.unsynced[ino]; unsynced { // it may not have been whole when it was opened
			err = r.suspect(ino)
		} else {
			err = r.keep(ino, true)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settled looks at content that was settled or fetched and may not be on the disk.
func (r *cutRecovery) settled() error {
	for ino := range r.unsynced {
		if err := r.suspect(ino); err != nil {
			return err
		}
	}
	return nil
}

// newer looks at content files that were changed when the index was not safe any
// more: what it says of them may be from before.
func (r *cutRecovery) newer() error {
	safe, err := r.db.Setting(settingSafe)
	if err != nil {
		return err
	}
	var inos []index.Ino
	err = r.cache.Sweep(func(ino index.Ino, st cache.Stat) bool {
		if st.Ctime >= int64(safe) {
			inos = append(inos, ino)
		}
		return true
	})
	for _, ino := range inos {
		if err == nil {
			err = r.suspect(ino)
		}
	}
	return err
}

func (r *cutRecovery) suspect(ino index.Ino) error {
	if r.done[ino] {
		return nil
	}
	if ok, err := r.remote(ino); err != nil || ok {
		return err
	}
	return r.keep(ino, false)
}

// remote gives up local content that the bucket has too.
func (r *cutRecovery) remote(ino index.Ino) (ok bool, err error) {
	err = r.db.Update(func(b *index.Batch) error {
		n, err := r.db.Inode(ino)
		if err != nil || n.Remote {
			ok = n.Remote
			return ignoreNotExist(err)
		}
		if ok, err = r.held(&n); err != nil || !ok {
			return err
		}
		n.Remote = true
		b.PutInode(n)
		b.ClearOpen(ino)
		b.ClearUnsynced(ino)
		return nil
	})
	if err != nil || !ok {
		return false, err
	}
	if !r.done[ino] {
		r.done[ino] = true
		r.dropped++
	}
	return true, r.cache.Remove(ino)
}

// keep takes what is there for the content of a file that has no other. changed
// says that it counts as changed in any case.
func (r *cutRecovery) keep(ino index.Ino, changed bool) error {
	r.done[ino] = true
	n, err := r.db.Inode(ino)
	if errors.Is(err, fs.ErrNotExist) {
		return r.db.Update(func(b *index.Batch) error { b.ClearOpen(ino); b.ClearUnsynced(ino); return nil })
	}
	if err != nil {
		return err
	}
	st, err := r.cache.Stat(ino)
	if errors.Is(err, fs.ErrNotExist) {
		st, err = r.emptyContent(ino)
	}
	if err != nil {
		return fmt.Errorf("cannot recover inode %d: %w", ino, err)
	}
	r.kept++
	switch {
	case changed:
		return r.adopt(ino, st, later)
	case st.Size != n.Size:
		r.lost++
		return r.giveWay(ino, st)
	}
	if _, open := r.marks[ino]; open {
		return r.giveWay(ino, st)
	}
	return nil
}
