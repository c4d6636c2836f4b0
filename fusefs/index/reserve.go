package index

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// A reserve is disk space that the index keeps for itself in a file. Where the
// volume is full the file goes, so that what is in memory can be written: Pebble
// cannot go on otherwise, nor could anybody remove files. While it is gone
// commits end before the space does.
type reserve struct {
	path string
	size int64

	mu   sync.Mutex // protects gone
	gone bool
}

// The size of the reserve: more than what Pebble and the log hold in memory.
const (
	reserveMost = 64 << 20
	reservePart = 10 // of the volume, at most
)

// newReserve makes the reserve of an index in a directory. That there is no room
// for it now is no error.
func newReserve(dir string) (*reserve, error) {
	r := &reserve{path: filepath.Join(dir, "reserve"), gone: true}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil, err
	}
	r.size = min(reserveMost, int64(st.Blocks)*st.Bsize/reservePart)
	r.renew()
	return r, nil
}

// release gives the space back to the volume.
func (r *reserve) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
	os.Remove(r.path) // if it cannot be removed the writer's own error tells
}

// renew takes the space again once there is twice as much.
func (r *reserve) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if info, err := os.Stat(r.path); err == nil && info.Size() == r.size {
		r.gone = false
	}
	if !r.gone || r.free() < 2*r.size {
		return
	}
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Fallocate(int(f.Fd()), 0, 0, r.size) != nil {
		os.Remove(r.path)
		return
	}
	r.gone = false
}

// spent says that too little is left to begin anything new.
func (r *reserve) spent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone && r.free() < r.size/2
}

// free returns what the volume has for anybody.
func (r *reserve) free() int64 {
	var st unix.Statfs_t
	if unix.Statfs(filepath.Dir(r.path), &st) != nil {
		return 0
	}
	return int64(st.Bfree) * st.Bsize
}

// Reserve takes back space that the index gave up when the volume was full, if
// there is room again. It is called now and then.
func (db *DB) Reserve() { db.reserve.renew() }

// errFull refuses a commit: see reserve.
var errFull error = &fs.PathError{Op: "write", Path: "index", Err: unix.ENOSPC}

// roomForCommit is called before a commit.
func (db *DB) roomForCommit() error {
	if db.reserve.spent() {
		return errFull
	}
	return nil
}

// withReserve does a write, and again with the reserve when the volume is full.
func (db *DB) withReserve(write func() error) error {
	err := write()
	if errors.Is(err, unix.ENOSPC) {
		db.reserve.release()
		err = write()
	}
	return err
}
