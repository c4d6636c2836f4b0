package sandbox

import (
	"context"
	"slices"
	"time"
)

// watch notices when a claimed container dies behind our back.
func (m *Manager) watch(k *machine, b *box) {
	for {
		if conn, err := b.link.wait(b.ctx); err == nil {
			select {
			case <-conn.done:
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
		err := m.transition(m.ctx, k, cleanTimeout, func(ctx context.Context) error {
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
