package sandbox

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
)

const sweepEvery = 10 * time.Second

// reconcile compares records, containers and slots with each other. A machine
// whose record says that it runs here, and whose agent dials again, is taken
// over; every other container and slot goes.
func (m *Manager) reconcile(ctx context.Context) error {
	containers, err := m.o.Provider.List(ctx)
	if err != nil {
		return fmt.Errorf("cannot list containers: %w", err)
	}
	slots, err := m.o.Mounts.Slots(ctx)
	if err != nil {
		return fmt.Errorf("cannot list slots: %w", err)
	}
	recs, err := m.o.Records.List(ctx, recordPrefix)
	if err != nil {
		return fmt.Errorf("cannot list machines: %w", err)
	}
	bySlot := map[berth.ID]Container{}
	for _, c := range containers {
		bySlot[c.Slot] = c
	}
	var group errgroup.Group
	group.SetLimit(8)
	for _, rec := range recs {
		r, err := parseRecord(rec)
		if err != nil {
			m.o.Logger.Warn("Cannot read a machine's record", "key", rec.Key, "err", err)
			continue
		}
		switch {
		case r.Installation != m.info.Installation:
		case r.State == Running:
			m.pool.use(r.Slot)
			group.Go(func() error { return m.resume(ctx, r, bySlot[r.Slot]) })
		case r.Remove:
			group.Go(func() error { return m.removeLater(ctx, r) })
		}
	}
	used := m.pool.inUse()
	for _, c := range containers {
		if !used[c.Slot] {
			slots = append(slots, c.Slot)
		}
	}
	for _, slot := range slots {
		if !used[slot] {
			used[slot] = true // once is enough
			group.Go(func() error {
				m.pool.clean(slot, nil)
				return nil
			})
		}
	}
	return group.Wait()
}

// resume takes over one machine that runs according to its record. c is its
// container, or the zero Container.
func (m *Manager) resume(ctx context.Context, r record, c Container) error {
	k := m.hold(r.View)
	defer m.drop(k)
	return m.transition(ctx, k, startTimeout, func(ctx context.Context) error {
		k.rec = r
		reason := "its container ended while berth was down"
		switch {
		case c.Running:
			b, err := m.reattach(ctx, r, c)
			if err == nil {
				m.adopt(k, b)
				return nil
			}
			m.o.Logger.Warn("Cannot take over a machine of an earlier run", "machine", k.id, "err", err)
			reason = "its agent did not come back after a restart of berth"
		case c.Exit != "":
			reason += ": " + c.Exit
		}
		if err := m.o.Provider.Destroy(ctx, r.Slot); err != nil {
			return fmt.Errorf("cannot remove container of machine %s: %w", k.id, err)
		}
		m.pool.releaseSlot(ctx, r.Slot)
		r.State, r.Reason, r.Slot, r.Since = Sleeping, reason, "", time.Now()
		if err := m.record(ctx, k, r); err != nil {
			// The store may be away: the missing container tells the same next time.
			m.o.Logger.Warn("Cannot record that a machine came to rest", "machine", k.id, "err", err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.setStateLocked(k, Sleeping, reason)
		return nil
	})
}

// reattach waits for the agent of a container that an earlier process claimed.
func (m *Manager) reattach(ctx context.Context, r record, c Container) (*box, error) {
	l, err := openLink(m.o.SlotsDir, r.Slot, m.o.Logger)
	if err != nil {
		return nil, err
	}
	l.expect(c.InitPID)
	wait, cancel := context.WithTimeout(ctx, 2*reconnect)
	defer cancel()
	if _, err := l.wait(wait); err != nil {
		l.close()
		return nil, err
	}
	// mountd may have been away too: what is mounted already is left alone.
	if err := m.o.Mounts.MountView(ctx, r.Slot, r.View); err != nil {
		l.close()
		return nil, err
	}
	b := newBox(r.Slot, c, l)
	b.view = r.View
	return b, nil
}

// removeLater goes on with a destruction that was cut short.
func (m *Manager) removeLater(ctx context.Context, r record) error {
	k := m.hold(r.View)
	defer m.drop(k)
	return m.transition(ctx, k, startTimeout, func(ctx context.Context) error {
		k.rec = r
		if err := m.removeTrees(ctx, k, r.View); err != nil {
			m.o.Logger.Warn("Cannot remove the files of a destroyed machine yet", "machine", k.id, "err", err)
		}
		return nil
	})
}

// sweepLoop removes what a failed removal has left, and dead warm containers.
// Only what is seen unused twice goes: a slot is in the table a moment after it
// was made.
func (m *Manager) sweepLoop(ctx context.Context) {
	seen := map[berth.ID]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweepEvery):
		}
		m.pool.dropDead()
		m.pool.refill()
		seen = m.sweep(ctx, seen)
	}
}

// sweep removes unused slots that were unused before, and returns the others.
func (m *Manager) sweep(ctx context.Context, before map[berth.ID]bool) map[berth.ID]bool {
	containers, err := m.o.Provider.List(ctx)
	if err != nil {
		return before
	}
	slots, err := m.o.Mounts.Slots(ctx)
	if err != nil {
		return before
	}
	for _, c := range containers {
		slots = append(slots, c.Slot)
	}
	used, fresh := m.pool.inUse(), map[berth.ID]bool{}
	for _, slot := range slots {
		switch {
		case used[slot]:
		case before[slot]:
			delete(before, slot)
			m.pool.clean(slot, nil)
		default:
			fresh[slot] = true
		}
	}
	return fresh
}
