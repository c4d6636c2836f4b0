package fusefs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"

	"berth/fusefs/cache"
	"berth/fusefs/index"
	bucketsync "berth/fusefs/sync"
)

// Names of what is kept in the index's settings.
const (
	gatewayText = "gateway"
	bootText    = "boot"   // the run of the machine that the last process was in
	endedText   = ", over" // follows it when that process ended in order
)

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
		Gateway: id, Owner: f.opts.Owner == nil, Revalidate: f.opts.Revalidate, HistoryAge: f.opts.HistoryAge, Room: f.hasRoom, Space: f.takeSpaceNow, Logger: f.log, Now: f.opts.Now})
	return err
}

// recover brings to an end what an earlier process left, before the mount. Files
// that were open for writing have settled, unless a process has outlived the
// server with its file open or mapped: the kernel goes on writing to the content
// file for it, and the file stays marked. If the machine has stopped since, what
// may not have reached the disk is looked at: see recoverCut.
func (f *FS) recover() error {
	last, err := f.db.Text(bootText)
	if err != nil {
		return err
	}
	boot, err := f.bootID()
	if err != nil {
		return err
	}
	marks := make(map[index.Ino]index.OpenMark)
	err = f.db.OpenMarks(func(ino index.Ino, m index.OpenMark) bool {
		marks[ino] = m
		return true
	})
	if err != nil {
		return fmt.Errorf("cannot recover: %w", err)
	}
	if last != boot && last != boot+endedText {
		if err := f.recoverCut(marks, last != "" && !strings.HasSuffix(last, endedText)); err != nil {
			return fmt.Errorf("cannot recover from the stop of the machine: %w", err)
		}
		clear(marks)
	}
	if err := f.recoverOpen(marks); err != nil {
		return err
	}
	if err := f.recoverReplaced(); err != nil {
		return err
	}
	if err := f.cache.EachSnapshot(f.cache.RemoveSnapshot); err != nil {
		return err
	}
	if last == boot {
		return nil
	}
	if err := f.db.Update(func(b *index.Batch) error { b.PutText(bootText, boot); return nil }); err != nil {
		return err
	}
	return f.db.Sync()
}

// bootID names the run of the machine: after a power cut it is another.
func (f *FS) bootID() (string, error) {
	if f.opts.boot != "" {
		return f.opts.boot, nil
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot tell whether the machine has stopped: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// noteEnd notes that this process has ended in order, so that the index is what
// it was whatever the machine does then.
func (f *FS) noteEnd() error {
	boot, err := f.bootID()
	if err == nil {
		err = f.db.Update(func(b *index.Batch) error { b.PutText(bootText, boot+endedText); return nil })
	}
	if err == nil {
		err = f.db.Sync()
	}
	return err
}

// recoverOpen settles what was open.
func (f *FS) recoverOpen(marks map[index.Ino]index.OpenMark) error {
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

// recoverReplaced goes on with old content that is kept.
func (f *FS) recoverReplaced() error {
	unsynced, err := f.db.AllUnsynced()
	if err != nil {
		return err
	}
	olds, err := f.cache.Olds()
	if err != nil {
		return err
	}
	for ino, u := range unsynced {
		if u.Old != 0 {
			f.replaced.add(ino, u.Old, olds[ino])
		}
	}
	for ino, gen := range olds {
		if unsynced[ino].Old != ino {
			f.discards.add(discarded{ino: ino, old: true, gen: gen})
		}
	}
	return nil
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
