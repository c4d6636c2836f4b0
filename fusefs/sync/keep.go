package sync

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"time"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

// What the history keeps of what is displaced. Everything that was current at a
// checkpoint is kept, whatever the times.
const (
	collapse   = 5 * time.Minute // overwritten within it, and another kept within it: not kept
	temporary  = time.Minute     // deleted within it: not kept
	maxKept    = 1 << 30         // larger objects are not copied
	maxWindows = 1 << 14
)

// remade are the directories whose content is made from other files, by packages'
// tools: the history leaves it out.
var remade = []string{"node_modules", ".venv", "__pycache__", ".next", ".vite"}

// keepsHistory says whether versions of a key are kept: not of machines' homes and
// of what can be made anew.
func keepsHistory(key string) bool {
	for i, name := range strings.Split(key, "/") {
		if i == 1 && name == "machines" {
			return false
		}
		for _, r := range remade {
			if name == r {
				return false
			}
		}
	}
	return true
}

// windows remembers which version of a key was kept last, for as long as that
// matters. What it forgets costs at most one version more or less.
type windows struct {
	mu   sync.Mutex // protects the field below
	last map[string]window
}

// A window begins with the last version that was kept, or with the first that was
// not.
type window struct {
	stamp index.Stamp
	kept  bool
}

// over says whether a version is so much later than the beginning of its key's
// window that it is to be kept.
func (w *windows) over(key string, stamp index.Stamp) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.last[key]
	if !ok {
		w.putLocked(key, window{stamp, false})
		return false
	}
	return stamp.Milli()-last.stamp.Milli() >= collapse.Milliseconds()
}

// has says whether a version was the last that was kept.
func (w *windows) has(key string, stamp index.Stamp) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last[key] == window{stamp, true}
}

// kept notes that a version is in the history.
func (w *windows) kept(key string, stamp index.Stamp) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.putLocked(key, window{stamp, true})
}

func (w *windows) putLocked(key string, next window) {
	if w.last == nil || len(w.last) >= maxWindows {
		w.last = make(map[string]window)
	}
	w.last[key] = next
}

// keepOverwritten keeps the object under a key before an inode's content takes its
// place, if that is another and the history wants it.
func (s *Syncer) keepOverwritten(ctx context.Context, r index.Remote, n *index.Inode) error {
	if r.ETag == "" || n.IsDir() || r.Ino == n.Ino && r.Gen == gen(n) {
		return nil
	}
	return s.keep(ctx, r, n.Stamp, berth.EndOverwritten)
}

// keepDeleted keeps the object under a key before it is deleted, if the history
// wants it.
func (s *Syncer) keepDeleted(ctx context.Context, r index.Remote) error {
	if strings.HasSuffix(r.Key, "/") {
		return nil
	}
	return s.keep(ctx, r, s.clock.Now(), berth.EndDeleted)
}

// keep copies an object to the history that its rules want and that no file has
// as its content any more. ended is when it was displaced. That a store refuses
// the copy for good does not hold up the upload.
func (s *Syncer) keep(ctx context.Context, r index.Remote, ended index.Stamp, end berth.VersionEnd) error {
	stamp := versionStamp(r.Stamp, r.LastModified, r.ETag)
	if r.Size > maxKept || !keepsHistory(r.Key) || s.windows.has(r.Key, stamp) {
		return nil
	}
	if alive, err := s.isCurrent(r); err != nil || alive {
		return err
	}
	if wanted, err := s.wantsVersion(r.Key, stamp, ended, end); err != nil || !wanted {
		return err
	}
	err := s.copyToHistory(ctx, r.Key, r.ETag, stamp, end)
	if errors.Is(err, berth.ErrUnavailable) {
		return err
	}
	for _, final := range []error{object.ErrOverlap, errors.ErrUnsupported, fs.ErrPermission, fs.ErrInvalid} {
		if errors.Is(err, final) {
			s.log.Warn("Cannot keep a version in the history", "key", r.Key, "cause", err)
			return nil
		}
	}
	return err
}

// wantsVersion says whether the times of a version, or a checkpoint, make it one
// to be kept.
func (s *Syncer) wantsVersion(key string, stamp, ended index.Stamp, end berth.VersionEnd) (bool, error) {
	lived := time.Duration(ended.Milli()-stamp.Milli()) * time.Millisecond
	if end == berth.EndDeleted && lived >= temporary {
		return true, nil
	}
	if end == berth.EndOverwritten && (s.windows.over(key, stamp) || lived >= collapse) {
		return true, nil
	}
	root, _, ok, err := s.treeOf(key)
	if err != nil || !ok {
		return false, err
	}
	return s.db.CheckpointBetween(root, stamp.Time, ended.Time)
}

// isCurrent says whether a file still has the content that a Remote tells of, as
// after a rename.
func (s *Syncer) isCurrent(r index.Remote) (bool, error) {
	n, err := s.db.Inode(r.Ino)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && n.Links > 0 && gen(&n) == r.Gen, err
}

// copyToHistory keeps a version of a key. That it is gone already is no error.
func (s *Syncer) copyToHistory(ctx context.Context, key, etag string, stamp index.Stamp, end berth.VersionEnd) error {
	_, err := s.store.Copy(ctx, historyKey(key, stamp, end), key, object.CopyOptions{SourceETag: etag})
	if err == nil {
		s.windows.kept(key, stamp)
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !errors.Is(err, object.ErrPrecondition) {
		return err
	}
	info, err := s.store.Head(ctx, key)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && info.ETag != etag:
		return nil
	case err != nil:
		return err
	}
	return errTaken
}
