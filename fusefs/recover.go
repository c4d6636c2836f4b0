package fusefs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"

	"berth/fusefs/cache"
	"berth/fusefs/index"
	bucketsync "berth/fusefs/sync"
)

// Names of what is kept in the index's settings.
const gatewayText = "gateway"

// openSync makes the Syncer, with an id for this state directory that is made
// once.
func (f *FS) openSync() error {
	id, err := f.db.Text(gatewayText)
	if err != nil {
		return err
	}
	if id == "" {
		id = strings.ToLower(rand.Text())[:12]
		if err := f.db.Update(func(b *index.Batch) error { b.PutText(gatewayText, id); return nil }); err != nil {
			return err
		}
		if err := f.db.Sync(); err != nil {
			return err
		}
	}
	f.sync, err = bucketsync.New(bucketsync.Options{DB: f.db, Store: f.opts.Store, Cache: f.cache, Hooks: f,
		Gateway: id, Owner: f.opts.Owner == nil, Revalidate: f.opts.Revalidate, Room: f.hasRoom, Logger: f.log, Now: f.opts.Now})
	return err
}

// recover brings to an end what an earlier process left. Files that were open for
// writing have settled, unless a process has outlived the server with its file
// open or mapped: the kernel goes on writing to the content file for it, and the
// file stays marked. It runs before the mount.
func (f *FS) recover() error {
	marks := make(map[index.Ino]index.OpenMark)
	err := f.db.OpenMarks(func(ino index.Ino, m index.OpenMark) bool {
		marks[ino] = m
		return true
	})
	if err != nil {
		return fmt.Errorf("cannot recover: %w", err)
	}
	changed, held := 0, 0
	for ino, m := range marks {
		if err := f.cache.Thaw(ino); err != nil && f.cache.Freezes() {
			return fmt.Errorf("cannot recover inode %d: %w", ino, err)
		}
		if settled, err := f.cache.Settled(ino); err == nil && !settled {
			held++
			f.takeOver(ino, m)
			continue
		}
		did, err := f.recoverFile(ino, m)
		if err != nil {
			return fmt.Errorf("cannot recover inode %d: %w", ino, err)
		}
		if did {
			changed++
		}
	}
	if err := f.cache.EachSnapshot(f.cache.RemoveSnapshot); err != nil {
		return err
	}
	if len(marks) > 0 {
		f.log.Info("Settled the files that were open when the last run ended", "open", len(marks), "changed", changed, "written_on", held)
	}
	return nil
}

// takeOver makes a file that is still written to one of ours: it counts as open
// until it settles.
func (f *FS) takeOver(ino index.Ino, m index.OpenMark) {
	o := f.opens.get(ino)
	defer f.opens.put(o, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := f.db.Inode(ino)
	if err == nil {
		f.db.CountOpen(ino, n.Tree, n.Size)
	}
	o.tree, o.outlived = n.Tree, true
	o.setMarked(f, m)
}

// recoverFile settles one file by comparing it with its mark.
func (f *FS) recoverFile(ino index.Ino, m index.OpenMark) (changed bool, err error) {
	st, err := f.cache.Stat(ino)
	if errors.Is(err, fs.ErrNotExist) {
		// The mark was written and the process died before it made the file.
		st, err = f.emptyContent(ino)
		m.Fresh = true
	}
	if err != nil {
		return false, err
	}
	if changedSince(m, st) || f.cache.Blind() {
		return true, f.commitContent(ino, st, nil)
	}
	return false, f.db.Update(func(b *index.Batch) error { b.ClearOpen(ino); return nil })
}

// emptyContent makes an empty content file, unless the inode is gone.
func (f *FS) emptyContent(ino index.Ino) (cache.Stat, error) {
	if _, err := f.db.Inode(ino); err != nil {
		return cache.Stat{}, nil // commitContent clears the mark
	}
	file, err := f.cache.Create(ino)
	if err != nil {
		return cache.Stat{}, err
	}
	defer file.Close()
	return cache.StatFile(file)
}

// snapAll is a generation above all.
const snapAll = math.MaxUint64
