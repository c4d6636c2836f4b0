package index

import (
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A walFS is the disk with one difference: syncing a write-ahead log only hands
// its bytes to the kernel, unless somebody waits for durability. Pebble buffers commits that
// need no sync in the process, where kill -9 loses them; committing with sync on
// this file system writes each batch through at the price of one write(2).
type walFS struct {
	vfs.FS
	durable *atomic.Int32
}

func (w walFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, c)
	return w.wrap(name, f), err
}

func (w walFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.ReuseForWrite(oldname, newname, c)
	return w.wrap(newname, f), err
}

func (w walFS) wrap(name string, f vfs.File) vfs.File {
	if f == nil || !strings.HasSuffix(name, ".log") {
		return f
	}
	return walFile{f, w.durable}
}

// Unwrap lets Pebble find the disk below.
func (w walFS) Unwrap() vfs.FS { return w.FS }

type walFile struct {
	vfs.File
	durable *atomic.Int32
}

func (f walFile) Sync() error { return f.SyncData() }

func (f walFile) SyncData() error {
	if f.durable.Load() > 0 {
		return f.File.SyncData()
	}
	return nil
}

func (f walFile) SyncTo(length int64) (bool, error) {
	if f.durable.Load() > 0 {
		return f.File.SyncTo(length)
	}
	return false, nil
}

// Close makes the log safe before a newer one takes over: DB.Sync only syncs the
// newest.
func (f walFile) Close() error {
	err := f.File.SyncData()
	if cerr := f.File.Close(); err == nil {
		err = cerr
	}
	return err
}
