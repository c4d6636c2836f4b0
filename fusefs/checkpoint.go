package fusefs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"berth"
	"berth/fusefs/index"
)

// Bounds of what is set aside.
const (
	asideCopy  = 64 << 20 // copied at most for one file; above it only reflinks
	asideAge   = 24 * time.Hour
	asideBytes = 4 << 30

	checkpointSetting = "checkpoint"        // the last number given
	oldestSetting     = "checkpoint/oldest" // the first whose contents are all kept
)

// ErrNotKept says that a file had other content at a checkpoint, and that it is
// not kept: it was too large to copy, or the checkpoint is too old.
var ErrNotKept = errors.New("the earlier content is not kept")

// A Version describes a generation of a file's content.
type Version struct {
	Gen   uint64
	Size  int64
	Mode  uint32
	Mtime time.Time
	Stamp string
}

// A saveTable knows the current checkpoint of each tree that has one.
type saveTable struct {
	mu      sync.RWMutex // protects current
	current map[index.Ino]uint64
}

func (s *saveTable) at(tree index.Ino) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.current[tree]
}

func (s *saveTable) set(tree index.Ino, checkpoint uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		s.current = make(map[index.Ino]uint64)
	}
	s.current[tree] = checkpoint
}

// loadSaves reads the checkpoints of the trees.
func (f *FS) loadSaves() error {
	trees, err := f.db.Trees()
	if err != nil {
		return err
	}
	for prefix, root := range trees {
		n, err := f.db.Setting(checkpointSetting + "/" + prefix)
		if err != nil {
			return err
		}
		f.saves.set(root, n)
	}
	return nil
}

// Checkpoint pins what the files of the trees hold now and returns its number,
// greater than all before. From then on the content of a file is set aside before
// it is changed for the first time.
func (f *FS) Checkpoint(ctx context.Context, trees []berth.Tree) (uint64, error) {
	var number uint64
	roots := make([]index.Ino, len(trees))
	err := f.db.Update(func(b *index.Batch) error {
		last, err := f.db.Setting(checkpointSetting)
		if err != nil {
			return err
		}
		number = last + 1
		b.PutSetting(checkpointSetting, number)
		for i, t := range trees {
			root, ok, err := f.db.Tree(t.Prefix())
			if err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("tree %s is not attached: %w", t, fs.ErrNotExist)
			}
			roots[i] = root
			b.PutSetting(checkpointSetting+"/"+t.Prefix(), number)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("cannot make a checkpoint: %w", err)
	}
	for _, root := range roots {
		f.saves.set(root, number)
	}
	return number, nil
}

// Before returns what a path of a tree held at a checkpoint. fs.ErrNotExist means
// that it was no file then; ErrNotKept that nobody knows any more. The caller
// closes the reader.
func (f *FS) Before(ctx context.Context, t berth.Tree, path string, checkpoint uint64) (Version, io.ReadCloser, error) {
	v, r, err := f.before(ctx, t, path, checkpoint)
	if err != nil {
		return Version{}, nil, fmt.Errorf("cannot read %s/%s as it was: %w", t, path, err)
	}
	return v, r, nil
}

func (f *FS) before(ctx context.Context, t berth.Tree, path string, checkpoint uint64) (Version, io.ReadCloser, error) {
	root, ok, err := f.db.Tree(t.Prefix())
	if err != nil || !ok {
		return Version{}, nil, cmp.Or(err, fs.ErrNotExist)
	}
	oldest, err := f.db.Setting(oldestSetting)
	if err != nil {
		return Version{}, nil, err
	}
	if checkpoint < oldest {
		return Version{}, nil, ErrNotKept
	}
	s, ok, err := f.db.Saved(root, path, checkpoint)
	if err != nil {
		return Version{}, nil, err
	}
	if !ok {
		return f.present(ctx, root, path)
	}
	v := Version{Gen: s.Gen, Size: s.Size, Mode: s.Mode, Mtime: time.Unix(0, s.Mtime), Stamp: s.Stamp.String()}
	if s.Absent {
		return v, nil, fs.ErrNotExist
	}
	if s.File != "" {
		file, err := f.cache.OpenBefore(s.File)
		if errors.Is(err, fs.ErrNotExist) && f.orphans.has(s.Ino) {
			file, err = f.cache.Open(s.Ino, os.O_RDONLY) // on its way there
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = ErrNotKept // the process died before the bytes were set aside
		}
		return v, file, err
	}
	// The name went, but the file may live on unchanged under another.
	n, err := f.db.Inode(s.Ino)
	if err != nil || n.Gen != s.Gen || f.Busy(n.Ino) {
		return v, nil, ErrNotKept
	}
	file, err := f.openContent(ctx, &n)
	return v, file, err
}

// present opens a path as it is now: nothing of it was set aside since.
func (f *FS) present(ctx context.Context, root index.Ino, path string) (Version, io.ReadCloser, error) {
	at, err := f.db.Inode(root)
	if err != nil {
		return Version{}, nil, err
	}
	for name := range strings.SplitSeq(path, "/") {
		e, err := f.db.Lookup(at.Ino, name)
		if err != nil {
			return Version{}, nil, err
		}
		if at, err = f.db.Inode(e.Ino); err != nil {
			return Version{}, nil, err
		}
	}
	if !at.IsFile() {
		return Version{}, nil, fs.ErrNotExist
	}
	v := Version{Gen: at.Gen, Size: at.Size, Mode: at.Mode, Mtime: time.Unix(0, at.Mtime), Stamp: at.Stamp.String()}
	file, err := f.openContent(ctx, &at)
	return v, file, err
}

// openContent opens the content of an inode for reading, fetching it first.
func (f *FS) openContent(ctx context.Context, n *index.Inode) (*os.File, error) {
	if n.Remote {
		if err := f.sync.Fetch(ctx, n.Ino); err != nil {
			return nil, err
		}
	}
	return f.cache.Open(n.Ino, os.O_RDONLY)
}

// pruneSaves removes what was set aside too long ago, or is too much, the oldest
// first.
func (f *FS) pruneSaves() error {
	var all []index.Saved
	if err := f.db.AllSaved(func(s index.Saved) bool { all = append(all, s); return true }); err != nil {
		return err
	}
	files, err := f.cache.Befores()
	if err != nil {
		return err
	}
	var bytes int64
	for _, size := range files {
		bytes += size
	}
	slices.SortFunc(all, func(a, b index.Saved) int { return cmp.Compare(a.At, b.At) })
	old := f.now().Add(-asideAge).UnixNano()
	cut := 0
	for cut < len(all) && (all[cut].At < old || bytes > asideBytes) {
		bytes -= files[all[cut].File]
		cut++
	}
	if cut == 0 {
		return nil
	}
	return f.dropSaves(all[:cut])
}

func (f *FS) dropSaves(saves []index.Saved) error {
	err := f.db.Update(func(b *index.Batch) error {
		oldest, err := f.db.Setting(oldestSetting)
		if err != nil {
			return err
		}
		for _, s := range saves {
			oldest = max(oldest, s.Checkpoint+1)
			b.DeleteSaved(s)
		}
		b.PutSetting(oldestSetting, oldest)
		return nil
	})
	for _, s := range saves {
		if err == nil && s.File != "" {
			err = f.cache.RemoveBefore(s.File)
		}
	}
	return err
}
