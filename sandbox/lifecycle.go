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

// maxEnter bounds how often a call looks for a running machine.
const maxEnter = 5

// errStopped is the cause of calls that a stop ended.
var errStopped = fmt.Errorf("the machine was stopped: %w", berth.ErrUnavailable)

// enter begins a call: it returns the running machine's container, after a
// start where that is needed. leave ends the call.
func (m *Manager) enter(ctx context.Context, k *machine, v berth.View) (*box, error) {
	for range maxEnter {
		m.mu.Lock()
		if b := k.box; b != nil && !k.stopping && covers(b.view, v) {
			if b.link.current() != nil {
				defer m.mu.Unlock()
				if k.calls >= maxWaiting*m.o.MaxCalls {
					return nil, fmt.Errorf("cannot call machine %s: it has %d calls: %w", k.id, k.calls, ErrBusy)
				}
				k.calls++
				return b, nil
			}
		}
		m.mu.Unlock()
		if err := m.transition(ctx, k, startTimeout, func(ctx context.Context) error { return m.start(ctx, k, v) }); err != nil {
			return nil, err
		}
	}
	// It comes and goes: an agent that dials and hangs up, or a stop each time.
	return nil, fmt.Errorf("cannot call machine %s: %w", k.id, errAgentGone)
}

func (m *Manager) leave(k *machine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k.calls--
	m.armLocked(k)
}

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

// covers says whether the mounted view holds all that another asks for.
func covers(mounted, v berth.View) bool {
	for _, e := range v.Experts {
		if !slices.Contains(mounted.Experts, e) {
			return false
		}
	}
	return true
}

// merge adds the experts of one view to another.
func merge(v berth.View, experts []berth.ID) berth.View {
	v.Experts = slices.Clone(v.Experts)
	for _, e := range experts {
		if !slices.Contains(v.Experts, e) {
			v.Experts = append(v.Experts, e)
		}
	}
	return v
}

// Wake starts the machine of a view if it does not run.
func (m *Manager) Wake(ctx context.Context, v berth.View) error {
	if err := v.Check(); err != nil {
		return err
	}
	k := m.hold(v)
	defer m.drop(k)
	return m.transition(ctx, k, startTimeout, func(ctx context.Context) error { return m.start(ctx, k, v) })
}

// start makes the machine run with all experts of the view. It has the token.
func (m *Manager) start(ctx context.Context, k *machine, v berth.View) error {
	m.mu.Lock()
	b, stopping := k.box, k.stopping // stopping: a stop could not remove the container
	m.mu.Unlock()
	if b != nil {
		if !stopping && m.returns(ctx, b) {
			return m.mountMore(ctx, k, b, v)
		}
		if err := m.retire(ctx, k, Sleeping, m.endReason(ctx, b)); err != nil {
			return err
		}
	}
	rec, err := getRecord(ctx, m.o.Records, k.id)
	if err != nil {
		return err
	}
	if err := m.admit(k, rec, v); err != nil {
		return err
	}
	if err := m.claim(ctx, k); err != nil {
		m.fail(k, err)
		return fmt.Errorf("cannot start machine %s: %w", k.id, err)
	}
	return nil
}

// fail records that a machine could not be started. The next call tries again.
func (m *Manager) fail(k *machine, cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
	defer cancel()
	next := k.rec
	next.View, next.State, next.Reason, next.Slot, next.Since = k.view, Failed, cause.Error(), "", time.Now()
	if !errors.Is(cause, berth.ErrConflict) { // then the record is another gateway's
		if err := m.record(ctx, k, next); err != nil {
			m.o.Logger.Warn("Cannot record that a machine failed", "machine", k.id, "err", err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setStateLocked(k, Failed, next.Reason)
}

// admit lets a machine start, or says why it may not.
func (m *Manager) admit(k *machine, rec record, v berth.View) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case rec.State == Terminated:
		return fmt.Errorf("cannot start machine %s: %w", k.id, ErrTerminated)
	case rec.State == Running && rec.Installation != m.info.Installation:
		return fmt.Errorf("cannot start machine %s: it runs on another gateway: %w", k.id, berth.ErrUnavailable)
	}
	running := 0
	for _, other := range m.machines {
		if other.box != nil || other.state == Creating {
			running++
		}
	}
	if m.o.MaxRunning > 0 && running >= m.o.MaxRunning {
		return fmt.Errorf("cannot start machine %s: %d machines run: %w", k.id, running, ErrBusy)
	}
	k.rec = rec
	k.view = merge(v, rec.View.Experts)
	m.setStateLocked(k, Creating, "")
	return nil
}

// claim takes a container, gives it the view and writes the record.
func (m *Manager) claim(ctx context.Context, k *machine) error {
	b, err := m.pool.claim(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	b.view = k.view
	next := record{
		View: k.view, State: Running, Image: b.container.Image, Installation: m.info.Installation,
		Slot: b.slot, Since: time.Now(), version: k.rec.version,
	}
	m.mu.Unlock()
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error { return m.o.Mounts.MountView(both, b.slot, next.View) })
	group.Go(func() error { return putRecord(both, m.o.Records, k.id, &next) })
	if err := group.Wait(); err != nil {
		k.rec.version = next.version // the record may have been written
		m.pool.discard(b)
		if errors.Is(err, berth.ErrConflict) {
			return fmt.Errorf("another gateway starts it too: %w", err)
		}
		return err
	}
	k.rec = next
	m.adopt(k, b)
	return nil
}

// adopt makes a claimed container the machine's and watches it.
func (m *Manager) adopt(k *machine, b *box) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k.box, k.stopping, k.image = b, false, b.container.Image
	m.setStateLocked(k, Running, "")
	m.armLocked(k)
	k.users++
	m.group.Go(func() {
		defer m.drop(k)
		m.watch(k, b)
	})
}

// mountMore mounts what a running machine's view lacks.
func (m *Manager) mountMore(ctx context.Context, k *machine, b *box, v berth.View) error {
	if covers(b.view, v) {
		return nil
	}
	whole := merge(b.view, v.Experts)
	if err := m.o.Mounts.MountView(ctx, b.slot, whole); err != nil {
		return fmt.Errorf("cannot add to the view of machine %s: %w", k.id, err)
	}
	next := k.rec
	next.View = whole
	if err := putRecord(ctx, m.o.Records, k.id, &next); err != nil {
		return err
	}
	k.rec = next
	m.mu.Lock()
	defer m.mu.Unlock()
	b.view, k.view = whole, whole
	return nil
}

// watch notices when a claimed container dies behind our back.
func (m *Manager) watch(k *machine, b *box) {
	for {
		conn, err := b.link.wait(b.ctx)
		if err == nil {
			select {
			case <-conn.done:
				err = errAgentGone
			case <-b.ctx.Done():
				return
			}
		}
		if b.ctx.Err() != nil {
			return
		}
		if m.returns(b.ctx, b) {
			continue
		}
		if b.ctx.Err() != nil {
			return
		}
		err = m.transition(m.ctx, k, cleanTimeout, func(ctx context.Context) error {
			m.mu.Lock()
			mine := k.box == b
			m.mu.Unlock()
			if !mine {
				return nil
			}
			return m.retire(ctx, k, Sleeping, m.endReason(ctx, b))
		})
		if err == nil || b.ctx.Err() != nil {
			return
		}
		m.o.Logger.Warn("Cannot clear away a machine that ended", "machine", k.id, "err", err)
		select {
		case <-time.After(reconnect):
		case <-b.ctx.Done():
			return
		}
	}
}

// returns waits for an agent that was lost to dial again, and says whether it
// did. A container that has ended is not waited for.
func (m *Manager) returns(ctx context.Context, b *box) bool {
	for _, limit := range [...]time.Duration{reconnect / 20, reconnect} {
		wait, cancel := context.WithTimeout(ctx, limit)
		_, err := b.link.wait(wait)
		cancel()
		if err == nil {
			return true
		}
		all, err := m.o.Provider.List(ctx)
		if err == nil && !slices.ContainsFunc(all, func(c Container) bool { return c.Slot == b.slot && c.Running }) {
			return false
		}
	}
	return false
}

// endReason asks the provider how a container ended.
func (m *Manager) endReason(ctx context.Context, b *box) string {
	all, err := m.o.Provider.List(ctx)
	if err != nil {
		return "its agent is gone"
	}
	for _, c := range all {
		switch {
		case c.Slot != b.slot:
		case c.Running:
			return "its agent did not answer"
		case c.Exit != "":
			return "its container ended: " + c.Exit
		}
	}
	return "its container ended"
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
