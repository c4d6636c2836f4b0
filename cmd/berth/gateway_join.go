package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"berth"
	"berth/api"
	"berth/mounts"
	"berth/preview"
	"berth/sandbox"
	"berth/sandbox/agent"
)

// What stands between packages that do not know each other: api and preview
// name what they need, mounts and sandbox have it.

// openChanges is preview's view of mountd's changes.
func (g *gateway) openChanges(ctx context.Context, epoch string, since uint64) (preview.Stream, error) {
	s, err := g.mountd.Changes(ctx, epoch, since)
	if err != nil {
		return nil, changesError(err)
	}
	return changeStream{s}, nil
}

type changeStream struct{ *mounts.ChangeStream }

func (s changeStream) Next(ctx context.Context) ([]berth.Change, error) {
	changes, err := s.ChangeStream.Next(ctx)
	return changes, changesError(err)
}

func changesError(err error) error {
	if errors.Is(err, mounts.ErrReset) {
		return preview.ErrReset
	}
	return err
}

// toolCalls is preview's view of the manager's calls.
type toolCalls struct{ manager *sandbox.Manager }

func (t toolCalls) CallByID(id berth.ID) (preview.Call, bool) {
	c, ok := t.manager.CallByID(id)
	return previewCall(c), ok
}

func (t toolCalls) CallsOn(tree berth.Tree, from, to time.Time) []preview.Call {
	calls := t.manager.CallsOn(tree, from, to)
	out := make([]preview.Call, len(calls))
	for i, c := range calls {
		out[i] = previewCall(c)
	}
	return out
}

func previewCall(c sandbox.CallInfo) preview.Call {
	return preview.Call{ID: c.ID, View: c.View, Checkpoint: c.Checkpoint, Started: c.Started, Ended: c.Ended}
}

// machines is the API's view of the manager.
type machines struct{ manager *sandbox.Manager }

func (m machines) Run(ctx context.Context, v berth.View, c api.Call) (json.RawMessage, error) {
	answer, err := m.manager.Run(ctx, v, sandbox.Call{ID: c.ID, Expert: c.Expert, Tool: c.Tool, Args: c.Args})
	return answer, machineError(err)
}

func (m machines) Machine(ctx context.Context, id berth.ID) (api.Machine, error) {
	now, err := m.manager.Machine(ctx, id)
	return api.Machine{
		ID: id, State: string(now.State), Reason: now.Reason, Image: now.Image,
		Isolation: now.Isolation, Missing: now.Missing, Since: now.Since,
	}, machineError(err)
}

func (m machines) Stop(ctx context.Context, v berth.View) error {
	return machineError(m.manager.Stop(ctx, v))
}

func (m machines) Wake(ctx context.Context, v berth.View) error {
	return machineError(m.manager.Wake(ctx, v))
}

func (m machines) Destroy(ctx context.Context, v berth.View) error {
	return machineError(m.manager.Destroy(ctx, v))
}

func (m machines) Counts() (running, warm int) { return m.manager.Counts() }

// machineError adds the errors that the API knows to those of the sandbox.
func machineError(err error) error {
	var said *agent.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sandbox.ErrBusy):
		return fmt.Errorf("%w: %w", err, api.ErrLimit)
	case errors.Is(err, sandbox.ErrTerminated):
		return fmt.Errorf("%w: %w", err, berth.ErrConflict)
	case !errors.As(err, &said):
		return err
	case said.Code == agent.CodeTooLarge:
		return fmt.Errorf("%w: %w", err, api.ErrTooLarge)
	case said.Code == agent.CodeFull:
		return fmt.Errorf("%w: %w", err, syscall.ENOSPC)
	case said.Code == agent.CodeInternal:
		// The machine's own trouble, which is not the gateway's.
		return fmt.Errorf("%w: %w", err, berth.ErrUnavailable)
	}
	return err
}

// watchMachines tells the feed of each state that a machine comes into, until
// ctx ends.
func (g *gateway) watchMachines(ctx context.Context) error {
	for {
		err := g.forwardStates(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, fs.ErrClosed):
			return nil
		case errors.Is(err, sandbox.ErrReset):
			g.feed.Reset("overflow")
		default:
			return fmt.Errorf("cannot follow the machines: %w", err)
		}
	}
}

func (g *gateway) forwardStates(ctx context.Context) error {
	sub := g.manager.Watch()
	defer sub.Close()
	for {
		states, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		for _, m := range states {
			g.feed.PublishMachine(preview.Machine{
				View: m.View, Chat: m.View.Chat, Machine: m.ID, State: string(m.State), Reason: m.Reason, Since: m.Since,
			})
		}
	}
}
