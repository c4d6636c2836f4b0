package sandbox

import (
	"context"
	"fmt"
	"time"

	"berth"
)

// Destroy ends a machine for good: its container, its home and, for a key's
// chat, its session root. It can be repeated until nothing is left.
func (m *Manager) Destroy(ctx context.Context, v berth.View) error {
	if err := v.Check(); err != nil {
		return err
	}
	k := m.hold(v)
	defer m.drop(k)
	return m.transition(ctx, k, 5*time.Minute, func(ctx context.Context) error { return m.destroy(ctx, k, v) })
}

func (m *Manager) destroy(ctx context.Context, k *machine, v berth.View) error {
	rec, err := getRecord(ctx, m.o.Records, k.id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	b, ours := k.box, m.info.Installation
	m.mu.Unlock()
	switch {
	case rec.State == Terminated && !rec.Remove:
		return nil
	case rec.State == Running && rec.Installation != ours:
		return fmt.Errorf("cannot destroy machine %s: it runs on another gateway: %w", k.id, berth.ErrUnavailable)
	}
	rec.Installation = ours
	// Recorded first: from here on no process starts the machine again.
	rec.View, rec.State, rec.Reason, rec.Remove, rec.Since = v, Terminated, "destroyed", true, time.Now()
	if b == nil {
		rec.Slot = ""
	}
	if err := putRecord(ctx, m.o.Records, k.id, &rec); err != nil {
		return fmt.Errorf("cannot destroy machine: %w", err)
	}
	k.rec = rec
	if b != nil {
		b.cancel(errStopped)
		if err := m.retire(ctx, k, Terminated, "destroyed"); err != nil {
			return err
		}
	}
	m.mu.Lock()
	m.setStateLocked(k, Terminated, "destroyed")
	m.mu.Unlock()
	return m.removeTrees(ctx, k, v)
}

// removeTrees removes what belongs to a terminated machine alone.
func (m *Manager) removeTrees(ctx context.Context, k *machine, v berth.View) error {
	trees := []berth.Tree{berth.MachineTree(v.Workspace, v.Machine)}
	if v.EndUser != "" {
		trees = append(trees, berth.SessionTree(v.Workspace, v.EndUser, v.Chat))
	}
	for _, t := range trees {
		if err := m.o.Mounts.RemoveTree(ctx, t); err != nil {
			return fmt.Errorf("cannot remove files of destroyed machine %s: %w", k.id, err)
		}
	}
	next := k.rec
	next.Remove = false
	return m.record(ctx, k, next)
}
