package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/sandbox/agent"
)

// errStopped is the cause of calls that a stop ended.
var errStopped = fmt.Errorf("the machine was stopped: %w", berth.ErrUnavailable)

// armLocked sets the idle clock when no call runs.
func (m *Manager) armLocked(k *machine) {
	if k.idle != nil {
		k.idle.Stop()
		k.idle = nil
	}
	limit := m.o.Idle(k.view)
	if limit <= 0 || k.calls > 0 || k.box == nil || m.closed {
		return
	}
	b := k.box
	k.idle = time.AfterFunc(limit, func() {
		m.mu.Lock()
		if m.closed || k.box != b || k.calls > 0 {
			m.mu.Unlock()
			return
		}
		k.users++
		m.group.Add(1)
		m.mu.Unlock()
		defer m.group.Done()
		defer m.drop(k)
		err := m.transition(m.ctx, k, m.stopLimit(), func(ctx context.Context) error {
			m.mu.Lock()
			busy := k.box != b || k.calls > 0
			k.stopping = !busy
			m.mu.Unlock()
			if busy {
				return nil
			}
			return m.sleep(ctx, k, fmt.Sprintf("no call for %v", limit))
		})
		if err != nil {
			m.o.Logger.Warn("Cannot stop idle machine", "machine", k.id, "err", err)
		}
	})
}

// Stop puts a machine to sleep: its processes end, its files are flushed, its
// container goes. A machine that does not run is left as it is.
func (m *Manager) Stop(ctx context.Context, v berth.View) error {
	if err := v.Check(); err != nil {
		return err
	}
	return m.stop(ctx, v, "stopped")
}

func (m *Manager) stop(ctx context.Context, v berth.View, why string) error {
	k := m.hold(v)
	defer m.drop(k)
	return m.transition(ctx, k, m.stopLimit(), func(ctx context.Context) error {
		m.mu.Lock()
		b := k.box
		k.stopping = b != nil
		m.mu.Unlock()
		if b == nil {
			return nil
		}
		return m.sleep(ctx, k, why)
	})
}

// stopLimit is the longest that a stop may take.
func (m *Manager) stopLimit() time.Duration { return m.o.FlushTimeout + 2*cleanTimeout }

// sleep is the one way in which a machine comes to rest. It has the token, and
// no call can begin any more.
func (m *Manager) sleep(ctx context.Context, k *machine, reason string) error {
	m.mu.Lock()
	b := k.box
	m.mu.Unlock()
	b.cancel(errStopped) // calls that still run
	if conn := b.link.current(); conn != nil {
		end, cancel := context.WithTimeout(ctx, cleanTimeout)
		if err := conn.call(end, agent.PathEnd, struct{}{}, &struct{}{}, 4096); err != nil {
			m.o.Logger.Warn("Cannot end a machine's processes; they end with its container", "machine", k.id, "err", err)
		}
		cancel()
	}
	if pending := m.flush(ctx, b.view); len(pending) > 0 {
		reason += "; not in the bucket yet, kept on this host: " + strings.Join(pending, ", ")
		m.o.Logger.Warn("Cannot upload all of a machine's files before it sleeps; uploading goes on", "machine", k.id, "trees", pending)
	}
	return m.retire(ctx, k, Sleeping, reason)
}

// flush uploads the trees of a view and returns those it could not wait for.
func (m *Manager) flush(ctx context.Context, v berth.View) (pending []string) {
	ctx, cancel := context.WithTimeout(ctx, m.o.FlushTimeout)
	defer cancel()
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, t := range viewTrees(v) {
		group.Go(func() {
			if err := m.o.Mounts.Flush(ctx, t.String()); err != nil {
				mu.Lock()
				pending = append(pending, t.String())
				mu.Unlock()
				m.o.Logger.Warn("Cannot flush tree", "tree", t.String(), "err", err)
			}
		})
	}
	group.Wait()
	slices.Sort(pending)
	return pending
}

// retire removes the machine's container and slot and records its state. When
// the container cannot be removed the machine keeps it, so that no second one
// is started; the next caller tries again.
func (m *Manager) retire(ctx context.Context, k *machine, s State, reason string) error {
	m.mu.Lock()
	b := k.box
	k.stopping = true
	if k.idle != nil {
		k.idle.Stop()
		k.idle = nil
	}
	m.mu.Unlock()
	if err := m.o.Provider.Destroy(ctx, b.slot); err != nil {
		m.mu.Lock()
		m.setStateLocked(k, Failed, "its container cannot be removed: "+err.Error())
		m.mu.Unlock()
		return fmt.Errorf("cannot remove container of machine %s: %w", k.id, err)
	}
	b.close(errAgentGone)
	m.pool.release(ctx, b)
	next := k.rec
	next.State, next.Reason, next.Slot, next.Since = s, reason, "", time.Now()
	if err := m.record(ctx, k, next); err != nil {
		// Memory knows; after a restart the missing container tells the same.
		m.o.Logger.Warn("Cannot record that a machine came to rest", "machine", k.id, "err", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k.box, k.stopping = nil, false
	m.setStateLocked(k, s, reason)
	return nil
}

// record writes a machine's record. If somebody else changed it since, what
// they wrote is only replaced when it is not final.
func (m *Manager) record(ctx context.Context, k *machine, next record) error {
	err := putRecord(ctx, m.o.Records, k.id, &next)
	if errors.Is(err, berth.ErrConflict) {
		var now record
		if now, err = getRecord(ctx, m.o.Records, k.id); err != nil {
			return err
		}
		if now.State == Terminated && next.State != Terminated {
			k.rec = now
			return nil
		}
		next.version = now.version
		err = putRecord(ctx, m.o.Records, k.id, &next)
	}
	if err == nil {
		k.rec = next
	}
	return err
}

// StopAll puts all machines to sleep, side by side, and returns the first error.
func (m *Manager) StopAll(ctx context.Context) error {
	m.mu.Lock()
	var views []berth.View
	for _, k := range m.machines {
		if k.box != nil {
			views = append(views, k.view)
		}
	}
	m.mu.Unlock()
	var group errgroup.Group
	for _, v := range views {
		group.Go(func() error { return m.stop(ctx, v, "berth was stopped") })
	}
	return group.Wait()
}
