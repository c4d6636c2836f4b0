package fusefs

import (
	"context"
	"time"

	"berth/fusefs/cache"
	bucketsync "berth/fusefs/sync"
)

// A Status is what an FS is about.
type Status struct {
	Dirty       int       `json:"dirty"`       // files that are not in the bucket as they are here
	DirtyBytes  int64     `json:"dirty_bytes"` // of their content
	Oldest      time.Time `json:"oldest,omitzero"`
	Deletes     int       `json:"deletes"`             // objects to be deleted
	Renames     int       `json:"renames"`             // directory renames whose objects do not follow yet
	Uploads     int       `json:"uploads"`             // running
	Hidden      int       `json:"hidden"`              // keys of the bucket that no path can show
	StoreAway   time.Time `json:"store_away,omitzero"` // since then it has not answered
	StoreError  string    `json:"store_error,omitempty"`
	StoreErrAt  time.Time `json:"store_error_at,omitzero"`
	SkewSeconds float64   `json:"skew_seconds"` // of the store's clock, ahead of ours

	Open        int    `json:"open"`        // files that are open, or have not settled since
	CacheBytes  int64  `json:"cache_bytes"` // of the disk, as of the last look
	Passthrough bool   `json:"passthrough"` // the kernel reads and writes content itself
	Epoch       string `json:"epoch"`
	LastChange  uint64 `json:"last_change"`

	Trees []TreeStatus `json:"trees,omitempty"` // the fullest, up to maxTreeStatus
}

// Status returns it. It reads the index's queues but never waits for the store.
func (f *FS) Status() Status {
	f.opens.mu.Lock()
	open := len(f.opens.files)
	f.opens.mu.Unlock()
	s, err := f.sync.Status()
	st := Status{
		Dirty: s.Files, DirtyBytes: s.Bytes, Oldest: s.Oldest, Deletes: s.Deletes, Renames: s.Renames, Uploads: s.Running,
		Hidden: s.Hidden, StoreAway: s.Away, StoreErrAt: s.ErrorAt, SkewSeconds: s.Skew.Seconds(),
		Open: open, CacheBytes: f.cacheUsed.Load(), Passthrough: f.Passthrough(), Epoch: f.Epoch(), LastChange: f.LastChange(),
	}
	st.Trees = f.treeStatus()
	if err == nil {
		err = s.LastError
	}
	if err != nil {
		st.StoreError = err.Error()
	}
	return st
}

// Progress is what a flush still waits for.
type Progress = bucketsync.Progress

// Flush returns when all that was written before the call to keys that begin with
// prefix ("" = all) is in the bucket, or ctx ends.
func (f *FS) Flush(ctx context.Context, prefix string) error {
	return f.FlushProgress(ctx, prefix, nil)
}

// FlushProgress is Flush that tells now and then what is left.
func (f *FS) FlushProgress(ctx context.Context, prefix string, progress func(Progress)) error {
	for _, o := range f.opens.all() {
		o.mu.Lock()
		err := f.freezeLocked(o)
		o.mu.Unlock()
		f.opens.put(o, 1)
		if err != nil {
			return err
		}
	}
	return f.sync.Flush(ctx, prefix, progress)
}

// freezeLocked makes what an open file holds now a generation.
func (f *FS) freezeLocked(o *openFile) error {
	if o.marked && o.writers == 0 {
		f.settleLocked(o)
	}
	if !o.marked || f.orphans.has(o.ino) {
		return nil
	}
	if o.r != nil {
		if err := cache.WriteOut(o.r); err != nil {
			return err
		}
	}
	st, err := f.statLocked(o)
	if err != nil || !changedSince(o.base, st) {
		return err
	}
	o.pace.snapAt = time.Now()
	return f.snapshotLocked(o)
}
