package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"berth"
)

// box is a started container with its slot and the link to its agent.
type box struct {
	slot      berth.ID
	container Container
	link      *link
	view      berth.View // what is mounted in the slot; under Manager.mu
	ctx       context.Context
	cancel    context.CancelCauseFunc // ends the calls that use it
}

func newBox(slot berth.ID, c Container, l *link) *box {
	b := &box{slot: slot, container: c, link: l}
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
	return b
}

func (b *box) close(cause error) {
	b.cancel(cause)
	b.link.close()
}

// pool keeps started containers that nobody has claimed, and the table of the
// slots that are in use at all.
type pool struct {
	o      Options
	making chan struct{} // bounds the containers that are being made
	wanted chan struct{} // asks fill to look again

	mu    sync.Mutex // protects what follows
	ready []*box
	used  map[berth.ID]bool
}

// maxMaking bounds how many containers are made at once.
const maxMaking = 4

func newPool(o Options) *pool {
	return &pool{o: o, making: make(chan struct{}, maxMaking), wanted: make(chan struct{}, 1), used: map[berth.ID]bool{}}
}

func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready)
}

// claim returns a warm container, or makes one when there is none.
func (p *pool) claim(ctx context.Context) (*box, error) {
	defer p.refill()
	for {
		p.mu.Lock()
		if len(p.ready) == 0 {
			p.mu.Unlock()
			return p.create(ctx)
		}
		b := p.ready[0]
		p.ready = p.ready[1:]
		p.mu.Unlock()
		if b.link.current() != nil {
			return b, nil
		}
		p.discard(b) // it died while it waited
	}
}

// create makes a slot and a container on it and waits for its agent.
func (p *pool) create(ctx context.Context) (*box, error) {
	select {
	case p.making <- struct{}{}:
		defer func() { <-p.making }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	slot, err := p.o.Mounts.NewSlot(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot make slot: %w", err)
	}
	p.use(slot)
	l, err := openLink(p.o.SlotsDir, slot, p.o.Logger)
	if err != nil {
		p.clean(slot, nil)
		return nil, err
	}
	c, err := p.o.Provider.Create(ctx, slot)
	if err != nil {
		p.clean(slot, l)
		return nil, fmt.Errorf("cannot make container: %w", err)
	}
	l.expect(c.InitPID)
	wait, cancel := context.WithTimeoutCause(ctx, p.o.AgentTimeout,
		fmt.Errorf("it did not dial within %v: %w", p.o.AgentTimeout, berth.ErrUnavailable))
	defer cancel()
	if _, err := l.wait(wait); err != nil {
		p.clean(slot, l)
		return nil, err
	}
	return newBox(slot, c, l), nil
}

func (p *pool) use(slot berth.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used[slot] = true
}

// inUse returns the slots that this process has made or taken over and not
// given back.
func (p *pool) inUse() map[berth.ID]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[berth.ID]bool, len(p.used))
	for slot := range p.used {
		out[slot] = true
	}
	return out
}

// clean removes what there may be of a slot. What cannot be removed now is
// swept later, since the slot is no longer in use.
func (p *pool) clean(slot berth.ID, l *link) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
	defer cancel()
	if err := p.o.Provider.Destroy(ctx, slot); err != nil {
		p.o.Logger.Warn("Cannot remove container", "slot", slot, "err", err)
	}
	if l != nil {
		l.close()
	}
	p.releaseSlot(ctx, slot)
}

// discard removes a container with its slot.
func (p *pool) discard(b *box) {
	b.cancel(errAgentGone)
	p.clean(b.slot, b.link)
}

// release gives back the slot of a container that was removed.
func (p *pool) release(ctx context.Context, b *box) { p.releaseSlot(ctx, b.slot) }

func (p *pool) releaseSlot(ctx context.Context, slot berth.ID) {
	if err := p.o.Mounts.ReleaseSlot(ctx, slot); err != nil {
		p.o.Logger.Warn("Cannot release slot", "slot", slot, "err", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.used, slot)
}

// refill wakes fill.
func (p *pool) refill() {
	select {
	case p.wanted <- struct{}{}:
	default:
	}
}

// fill keeps the pool at its size until ctx ends. After a failure it waits
// longer and longer.
func (p *pool) fill(ctx context.Context) {
	pause := time.Duration(0)
	for {
		p.dropDead()
		if p.size() < p.o.Pool {
			limited, cancel := context.WithTimeout(ctx, startTimeout)
			b, err := p.create(limited)
			cancel()
			if err == nil {
				p.mu.Lock()
				p.ready = append(p.ready, b)
				p.mu.Unlock()
				pause = 0
				continue
			}
			if ctx.Err() != nil {
				return
			}
			pause = min(max(2*pause, time.Second), time.Minute)
			p.o.Logger.Warn("Cannot make a warm container", "retry", pause.String(), "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wanted:
		}
	}
}

// dropDead removes warm containers that have died.
func (p *pool) dropDead() {
	p.mu.Lock()
	var dead []*box
	live := p.ready[:0:0]
	for _, b := range p.ready {
		if b.link.current() == nil {
			dead = append(dead, b)
		} else {
			live = append(live, b)
		}
	}
	p.ready = live
	p.mu.Unlock()
	for _, b := range dead {
		p.discard(b)
	}
}

// empty removes all warm containers.
func (p *pool) empty(ctx context.Context) {
	p.mu.Lock()
	all := p.ready
	p.ready = nil
	p.mu.Unlock()
	var group sync.WaitGroup
	for _, b := range all {
		group.Go(func() { p.discard(b) })
	}
	group.Wait()
}
