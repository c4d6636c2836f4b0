package fusefs

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"berth"
	"berth/fusefs/cache"
	"berth/fusefs/index"
)

// Bounds of what is kept of earlier contents and names.
const (
	asideAge          = 24 * time.Hour // of bytes on this host that the bucket has too
	asideBytes        = 4 << 30
	asideGrace        = time.Hour // in which bytes get their record
	keepEvery         = time.Minute
	keepAfter         = time.Minute // so that the bucket may have got the content by its upload
	keepAtOnce        = 200
	defaultHistoryAge = 30 * 24 * time.Hour
	mostRecords       = 1_000_000 // of one tree
	dropBatch         = 1000
)

// An asideFile is bytes that were set aside, with their record.
type asideFile struct {
	name  string
	st    cache.Stat
	saved index.Saved // zero if there is none
}

// asideFiles returns what was set aside on this host, the oldest first.
func (f *FS) asideFiles() ([]asideFile, error) {
	all, err := f.cache.Befores()
	if err != nil {
		return nil, err
	}
	var out []asideFile
	for name, st := range all {
		file := asideFile{name: name, st: st}
		if ino, checkpoint, ok := parseAside(name); ok {
			s, ok, err := f.db.Saved(ino, checkpoint)
			if err != nil {
				return nil, err
			}
			if ok && s.File == name {
				file.saved = s
			}
		}
		out = append(out, file)
	}
	slices.SortFunc(out, func(a, b asideFile) int { return cmp.Compare(a.st.Ctime, b.st.Ctime) })
	return out, nil
}

// pruneAside removes bytes that the bucket has for long enough, those without a
// record, and the oldest when they are too much.
func (f *FS) pruneAside() error {
	files, err := f.asideFiles()
	if err != nil {
		return err
	}
	var bytes int64
	for _, file := range files {
		bytes += file.st.Used
	}
	now := f.now().UnixNano()
	for _, file := range files {
		s := file.saved
		stray := s.Ino == 0 && now-file.st.Ctime > int64(asideGrace)
		old := s.Kept && now-s.At > int64(asideAge)
		if !stray && !old && bytes <= asideBytes {
			continue
		}
		bytes -= file.st.Used
		if s.Ino != 0 {
			s.File = ""
			if err := f.db.Update(func(b *index.Batch) error { b.PutSaved(s); return nil }); err != nil {
				return err
			}
		}
		if err := f.cache.RemoveBefore(file.name); err != nil {
			return err
		}
	}
	return nil
}

// keepLoop puts what was set aside into the bucket's history, so that it outlives
// this host.
func (f *FS) keepLoop() error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := f.keepSaved(f.ctx, keepAfter); err != nil && f.ctx.Err() == nil {
			f.log.Debug("Cannot put what was set aside into the history, it is tried again", "cause", err)
		}
	}
}

// keepSaved puts into the history what was set aside longer ago than a time, up to
// keepAtOnce files. One that the store refuses does not hold up the others.
func (f *FS) keepSaved(ctx context.Context, after time.Duration) error {
	files, err := f.asideFiles()
	if err != nil {
		return err
	}
	var refused error
	done := 0
	for _, file := range files {
		s := file.saved
		if s.Ino == 0 || s.Kept || f.now().UnixNano()-s.At < int64(after) {
			continue
		}
		if done++; done > keepAtOnce {
			break
		}
		if err := f.keepOne(ctx, s); errors.Is(err, berth.ErrUnavailable) || ctx.Err() != nil {
			return err
		} else if err != nil {
			refused = errors.Join(refused, err)
		}
	}
	return refused
}

func (f *FS) keepOne(ctx context.Context, s index.Saved) error {
	prefix, ok := f.trees.prefix(s.Tree)
	if !ok {
		return nil
	}
	src, err := f.cache.OpenBefore(s.File)
	if err != nil {
		return ignoreNotExist(err)
	}
	defer src.Close()
	n := index.Inode{Ino: s.Ino, Mode: s.Mode, Mtime: s.Mtime, Ctime: s.Mtime, Stamp: s.Stamp}
	if err := f.sync.KeepContent(ctx, prefix+s.Path, &n, src, s.Size); err != nil {
		return err
	}
	return f.db.Update(func(b *index.Batch) error {
		now, ok, err := f.db.Saved(s.Ino, s.Checkpoint)
		if err != nil || !ok || now.Checkpoint != s.Checkpoint {
			return err
		}
		now.Kept = true
		b.PutSaved(now)
		return nil
	})
}

// pruneCheckpoints forgets the checkpoints of each tree that are too old, or have
// too many records, with what was noted for them.
func (f *FS) pruneCheckpoints() error {
	trees, err := f.db.Trees()
	if err != nil {
		return err
	}
	old := f.now().Add(-f.opts.HistoryAge).UnixMilli()
	for _, root := range trees {
		below := uint64(0)
		err := f.db.Checkpoints(root, func(c index.Checkpoint) bool {
			if int64(c.Clock>>16) >= old {
				return true
			}
			below = c.Number + 1
			return false
		})
		if err == nil {
			var most uint64
			most, err = f.db.CheckpointBehind(root, mostRecords)
			below = max(below, most)
		}
		if err == nil && below > 0 {
			err = f.dropCheckpoints(root, below)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dropCheckpoints forgets the checkpoints of a tree below a number.
func (f *FS) dropCheckpoints(root index.Ino, below uint64) error {
	for more := true; more; {
		if f.ctx.Err() != nil {
			return nil
		}
		err := f.db.Update(func(b *index.Batch) (err error) {
			_, more, err = b.DropCheckpoints(root, below, dropBatch)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forgetSaves removes all that was noted and set aside of a tree.
func (f *FS) forgetSaves(root index.Ino) error {
	files, err := f.asideFiles()
	if err == nil {
		err = f.dropCheckpoints(root, math.MaxUint64)
	}
	for _, file := range files {
		if file.saved.Tree == root {
			err = errors.Join(err, f.cache.RemoveBefore(file.name))
		}
	}
	f.saves.clear(root)
	return err
}
