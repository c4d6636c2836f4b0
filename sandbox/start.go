package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
)

// maxEnter bounds how often a call looks for a running machine.
const maxEnter = 5

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
