package mounts

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"berth"
	"berth/fusefs"
)

// memFS is a FileSystem of plain directories, with its history and changes in
// memory.
type memFS struct {
	dirTrees
	epoch string

	mu      sync.Mutex // protects what follows
	flushed []string
	saved   map[string][]byte // contents by tree, path and checkpoint
	number  uint64            // of the latest checkpoint
	changes []berth.Change    // dense; the first may be later than 1
	latest  uint64            // sequence number of the last change
	wake    chan struct{}     // closed at the next change
	readers int               // that wait
}

func newMemFS(root string) *memFS {
	return &memFS{dirTrees: dirTrees{root}, epoch: "e1", saved: make(map[string][]byte), wake: make(chan struct{})}
}

var _ FileSystem = (*memFS)(nil)

func (m *memFS) Flush(_ context.Context, prefix string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flushed = append(m.flushed, prefix)
	return nil
}

// Checkpoint keeps every file of the trees.
func (m *memFS) Checkpoint(_ context.Context, trees []berth.Tree) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.number++
	for _, t := range trees {
		root := filepath.Join(m.root, t.String())
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(name)
			rel, _ := filepath.Rel(root, name)
			m.saved[savedKey(t, rel, m.number)] = data
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return m.number, nil
}

func savedKey(t berth.Tree, path string, checkpoint uint64) string {
	return fmt.Sprint(t, " ", path, " ", checkpoint)
}

func (m *memFS) Before(_ context.Context, t berth.Tree, path string, checkpoint uint64) (io.ReadCloser, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.saved[savedKey(t, path, checkpoint)]
	if !ok {
		return nil, 0, &fs.PathError{Op: "before", Path: path, Err: fs.ErrNotExist}
	}
	return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
}

// The history of a memFS has each saved content as a version whose ID is that of
// its checkpoint.

func (m *memFS) ChangesSince(_ context.Context, t berth.Tree, checkpoint uint64) ([]berth.PathChange, bool, error) {
	if checkpoint == 0 {
		return nil, false, ErrNotKept
	}
	return []berth.PathChange{{Path: "f", Kind: berth.PathModified, File: berth.KindFile}}, true, nil
}

func (m *memFS) Versions(_ context.Context, t berth.Tree, path string) ([]berth.Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []berth.Version
	for n := m.number; n > 0; n-- {
		if data, ok := m.saved[savedKey(t, path, n)]; ok {
			out = append(out, berth.Version{ID: fmt.Sprint(n), Size: int64(len(data)), End: berth.EndOverwritten})
		}
	}
	return out, nil
}

func (m *memFS) OpenVersion(ctx context.Context, t berth.Tree, path, id string) (io.ReadCloser, int64, error) {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return nil, 0, fs.ErrInvalid
	}
	return m.Before(ctx, t, path, n)
}

func (m *memFS) Restore(ctx context.Context, t berth.Tree, path, id string) error {
	body, _, err := m.OpenVersion(ctx, t, path, id)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.root, t.String(), path), data, 0o644)
}

func (m *memFS) Deleted(_ context.Context, t berth.Tree, dir string) ([]berth.DeletedFile, bool, error) {
	return []berth.DeletedFile{{Path: "gone", Version: berth.Version{ID: "1", End: berth.EndDeleted}}}, true, nil
}

func (m *memFS) Status() any { return map[string]int{"dirty_files": 3} }

// publish adds a change; those before keep are forgotten.
func (m *memFS) publish(path string, keep uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latest++
	m.changes = append(m.changes, berth.Change{Seq: m.latest, Tree: "acme/shared", Path: path, Op: berth.OpCreate, Kind: berth.KindFile})
	for len(m.changes) > 0 && m.changes[0].Seq < keep {
		m.changes = m.changes[1:]
	}
	close(m.wake)
	m.wake = make(chan struct{})
}

func (m *memFS) Changes(since uint64) Subscription {
	m.mu.Lock()
	defer m.mu.Unlock()
	if since == fusefs.FromNow {
		since = m.latest
	}
	return &memSubscription{m: m, at: since}
}

func (m *memFS) openReaders() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readers
}

type memSubscription struct {
	m  *memFS
	at uint64
}

func (s *memSubscription) Epoch() string { return s.m.epoch }

func (m *memFS) wait(readers int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readers += readers
}

func (s *memSubscription) Next(ctx context.Context) ([]berth.Change, error) {
	s.m.wait(+1)
	defer s.m.wait(-1)
	for {
		s.m.mu.Lock()
		wake, changes := s.m.wake, s.m.changes
		latest := s.m.latest
		s.m.mu.Unlock()
		if s.at > latest || s.at < latest && (len(changes) == 0 || changes[0].Seq > s.at+1) {
			return nil, ErrReset
		}
		if s.at < latest {
			got := changes[len(changes)-int(latest-s.at):]
			s.at = latest
			return got, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
