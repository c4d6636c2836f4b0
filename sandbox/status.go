package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"berth"
)

// Machine tells of a machine; one that never ran is waiting.
func (m *Manager) Machine(ctx context.Context, id berth.ID) (Machine, error) {
	m.mu.Lock()
	if k := m.machines[id]; k != nil && k.state != "" {
		defer m.mu.Unlock()
		return m.describeLocked(k), nil
	}
	m.mu.Unlock()
	rec, err := getRecord(ctx, m.o.Records, id)
	if err != nil {
		return Machine{}, err
	}
	return Machine{ID: id, View: rec.View, State: rec.State, Reason: rec.Reason, Image: rec.Image, Since: rec.Since}, nil
}

func (m *Manager) describeLocked(k *machine) Machine {
	d := Machine{ID: k.id, View: k.view, State: k.state, Reason: k.reason, Image: k.image, Since: k.since}
	if k.state == Running {
		d.Isolation, d.Missing = m.info.Isolation, m.info.Missing
	}
	return d
}

// Machines returns all machines of a workspace that ever ran, by id.
func (m *Manager) Machines(ctx context.Context, workspace berth.ID) ([]Machine, error) {
	recs, err := m.o.Records.List(ctx, recordPrefix)
	if err != nil {
		return nil, fmt.Errorf("cannot list machines: %w", err)
	}
	var out []Machine
	for _, rec := range recs {
		r, err := parseRecord(rec)
		if err != nil {
			m.o.Logger.Warn("Cannot read a machine's record", "key", rec.Key, "err", err)
			continue
		}
		if r.View.Workspace != workspace {
			continue
		}
		d, err := m.Machine(ctx, berth.ID(rec.Key[len(recordPrefix):]))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// Counts returns how many machines run and how many warm containers wait.
func (m *Manager) Counts() (running, warm int) {
	m.mu.Lock()
	for _, k := range m.machines {
		if k.box != nil {
			running++
		}
	}
	m.mu.Unlock()
	return running, m.pool.size()
}

// setStateLocked changes the state and tells the watchers.
func (m *Manager) setStateLocked(k *machine, s State, reason string) {
	if k.state == s && k.reason == reason {
		return
	}
	k.state, k.reason, k.since = s, reason, time.Now()
	m.feed.publish(m.describeLocked(k))
}
