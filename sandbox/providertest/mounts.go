package providertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"berth"
	"berth/sandbox"
)

// Mounts keeps trees as plain directories and shows them in slots by links.
type Mounts struct {
	dir      string // trees are below it
	slotsDir string

	mu       sync.Mutex // protects what follows
	slots    map[berth.ID]berth.View
	mark     uint64
	flushes  []string
	flushErr error
}

// NewMounts returns mounts that keep trees below dir and slots below slotsDir.
func NewMounts(dir, slotsDir string) *Mounts {
	return &Mounts{dir: dir, slotsDir: slotsDir, slots: map[berth.ID]berth.View{}}
}

// Tree returns where a tree is.
func (m *Mounts) Tree(t berth.Tree) string { return filepath.Join(m.dir, t.String()) }

// SetFlushError makes Flush fail.
func (m *Mounts) SetFlushError(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flushErr = err
}

// Flushed returns the trees that were flushed, in order.
func (m *Mounts) Flushed() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.flushes)
}

// NewSlot implements sandbox.Slots.
func (m *Mounts) NewSlot(context.Context) (berth.ID, error) {
	slot := berth.NewSlotID()
	dir := filepath.Join(m.slotsDir, string(slot))
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "home", "user"), 0o755), os.MkdirAll(filepath.Join(dir, "ctl"), 0o711)); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slots[slot] = berth.View{}
	return slot, nil
}

// MountView implements sandbox.Slots. A slot serves one machine in its life.
func (m *Mounts) MountView(_ context.Context, slot berth.ID, v berth.View) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, ok := m.slots[slot]
	if !ok {
		return fmt.Errorf("cannot mount view: slot %s does not exist: %w", slot, fs.ErrNotExist)
	}
	if old.Machine != "" && old.Machine != v.Machine {
		return fmt.Errorf("cannot mount view: slot %s is machine %s's: %w", slot, old.Machine, fs.ErrExist)
	}
	m.slots[slot] = v
	for _, p := range v.Places() {
		if err := m.link(filepath.Join(m.slotsDir, string(slot), "home", "user", p.Path), p.Tree); err != nil {
			return fmt.Errorf("cannot mount view: %w", err)
		}
	}
	return nil
}

// link shows a tree at a path.
func (m *Mounts) link(at string, t berth.Tree) error {
	if err := errors.Join(os.MkdirAll(m.Tree(t), 0o755), os.MkdirAll(filepath.Dir(at), 0o755)); err != nil {
		return err
	}
	if to, err := os.Readlink(at); err == nil && to == m.Tree(t) {
		return nil
	}
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	return os.Symlink(m.Tree(t), at)
}

// ReleaseSlot implements sandbox.Slots.
func (m *Mounts) ReleaseSlot(_ context.Context, slot berth.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.slots, slot)
	return os.RemoveAll(filepath.Join(m.slotsDir, string(slot)))
}

// Slots implements sandbox.Slots.
func (m *Mounts) Slots(context.Context) ([]berth.ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []berth.ID
	for slot := range m.slots {
		out = append(out, slot)
	}
	slices.Sort(out)
	return out, nil
}

// Flush implements sandbox.Trees.
func (m *Mounts) Flush(_ context.Context, tree string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flushes = append(m.flushes, tree)
	return m.flushErr
}

// RemoveTree implements sandbox.Trees.
func (m *Mounts) RemoveTree(_ context.Context, t berth.Tree) error {
	return os.RemoveAll(m.Tree(t))
}

// Checkpoint implements sandbox.Trees.
func (m *Mounts) Checkpoint(context.Context, []berth.Tree) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mark++
	return m.mark, nil
}

// Records keeps records in memory.
type Records struct {
	mu      sync.Mutex // protects what follows
	records map[string]berth.Record
	version int
	down    error
}

// NewRecords returns no records.
func NewRecords() *Records { return &Records{records: map[string]berth.Record{}} }

// SetDown makes changes fail with err, as when the store is away.
func (r *Records) SetDown(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = err
}

// Get implements berth.Records.
func (r *Records) Get(_ context.Context, key string) (berth.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.records[key]
	if !ok {
		return rec, fmt.Errorf("record %q does not exist: %w", key, fs.ErrNotExist)
	}
	return rec, nil
}

// List implements berth.Records.
func (r *Records) List(_ context.Context, prefix string) ([]berth.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []berth.Record
	for key, rec := range r.records {
		if strings.HasPrefix(key, prefix) {
			out = append(out, rec)
		}
	}
	slices.SortFunc(out, func(a, b berth.Record) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// Put implements berth.Records.
func (r *Records) Put(_ context.Context, rec berth.Record) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down != nil {
		return "", r.down
	}
	if r.records[rec.Key].Version != rec.Version {
		return "", fmt.Errorf("cannot write record %q: %w", rec.Key, berth.ErrConflict)
	}
	r.version++
	rec.Version = fmt.Sprint(r.version)
	r.records[rec.Key] = rec
	return rec.Version, nil
}

// Delete implements berth.Records.
func (r *Records) Delete(_ context.Context, key, version string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.records[key]
	switch {
	case r.down != nil:
		return r.down
	case !ok:
		return fmt.Errorf("cannot delete record %q: %w", key, fs.ErrNotExist)
	case rec.Version != version:
		return fmt.Errorf("cannot delete record %q: %w", key, berth.ErrConflict)
	}
	delete(r.records, key)
	return nil
}

var (
	_ sandbox.Mounts = (*Mounts)(nil)
	_ berth.Records  = (*Records)(nil)
)
