package embedded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/versity/versitygw/backend/meta"
)

// dirs removes directories that hold no object any more, but none that a write
// is about to put a name into. Paths are those of bucket and key joined.
type dirs struct {
	attrs meta.MetadataStorer

	mu    sync.Mutex     // protects writes, and is held over each removal
	wants map[string]int // how many writes go to the directory or below it
}

// hold keeps the directories above the key, and that of a marker itself, until
// release is called. With failed set, release removes those made in vain.
func (d *dirs) hold(bucket, key string) (release func(failed bool)) {
	var parents []string
	p := parent(bucket, key)
	if isMarker(key) {
		p = filepath.Join(bucket, key)
	}
	for ; p != bucket; p = filepath.Dir(p) {
		parents = append(parents, p)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range parents {
		d.wants[p]++
	}
	return func(failed bool) {
		d.mu.Lock()
		for _, p := range parents {
			if d.wants[p]--; d.wants[p] == 0 {
				delete(d.wants, p)
			}
		}
		d.mu.Unlock()
		if failed {
			d.prune(bucket, key)
		}
	}
}

// prune removes the directories above the key, from below, as far as they are
// empty, have no marker and are not wanted.
func (d *dirs) prune(bucket, key string) {
	for p := parent(bucket, key); p != bucket; p = filepath.Dir(p) {
		if !d.remove(p) {
			return
		}
	}
}

// remove removes one directory if nothing speaks against it. One that is gone
// already counts as removed: those above it may have been left for its sake.
func (d *dirs) remove(path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wants[path] > 0 {
		return false
	}
	_, err := d.attrs.RetrieveAttribute(nil, path, "", etagAttr)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if !errors.Is(err, meta.ErrNoSuchKey) {
		return false // it has a marker, or cannot be judged
	}
	err = os.Remove(path)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// clear removes a directory at the path of a key if there are only directories
// without markers in it, as a process leaves them that died on the way to a
// write. It stops at the first sign of an object.
func (d *dirs) clear(path string) {
	var below []string
	err := filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !e.IsDir() {
			return fs.ErrExist
		}
		below = append(below, p)
		return nil
	})
	if err != nil {
		return
	}
	for i := len(below) - 1; i >= 0; i-- {
		if !d.remove(below[i]) {
			return
		}
	}
}

// parent is the directory that holds the key's name; that of a marker holds the
// marked directory's.
func parent(bucket, key string) string {
	return filepath.Dir(filepath.Join(bucket, strings.TrimSuffix(key, "/")))
}
