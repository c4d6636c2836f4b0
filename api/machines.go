package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/labstack/echo/v4"

	"berth"
)

// errNoSandboxes is why nothing can be run.
var errNoSandboxes = fmt.Errorf("sandboxes are off on this gateway (berth up --sandboxes=off); files are still served: %w", berth.ErrUnavailable)

// machine returns the state of a chat's machine.
func (s *Server) machine(ctx context.Context, rec chatRecord) (Machine, error) {
	if s.o.Machines == nil {
		return Machine{ID: rec.Machine, State: "waiting", Reason: "sandboxes are off"}, nil
	}
	m, err := s.o.Machines.Machine(ctx, rec.Machine)
	if errors.Is(err, fs.ErrNotExist) {
		return Machine{ID: rec.Machine, State: "waiting"}, nil
	}
	return m, err
}

// ready returns the view of a chat for use: with the expert (if any) and with a
// machine that was not destroyed.
func (s *Server) ready(ctx context.Context, p owner, rec chatRecord, expert berth.ID) (berth.View, error) {
	change := func(now *chatRecord) (chatRecord, error) {
		if now == nil || !p.owns(*now) || now.Deleting {
			return chatRecord{}, notFound("chat", string(rec.Chat))
		}
		next := *now
		if expert != "" {
			if err := next.addExpert(expert); err != nil {
				return next, err
			}
		}
		if next.Destroyed {
			next.Machine, next.Destroyed = berth.NewMachineID(), false
		} else if len(next.Experts) == len(now.Experts) {
			return next, errUnchanged
		}
		return next, nil
	}
	if _, err := change(&rec); errors.Is(err, errUnchanged) {
		return rec.view(p.workspace), nil
	} else if err != nil {
		return berth.View{}, err
	}
	rec, err := update(ctx, s.records, p.chatKey(rec.Chat), change)
	return rec.view(p.workspace), err
}

// stopMachine puts the chat's machine to sleep; its files and id stay.
func (s *Server) stopMachine(c echo.Context, p owner) error {
	rec, err := s.chatParam(c, p)
	if err != nil {
		return err
	}
	if s.o.Machines == nil {
		return errNoSandboxes
	}
	if err := unlessNone(s.o.Machines.Stop(c.Request().Context(), rec.view(p.workspace))); err != nil {
		return err
	}
	return s.answerChat(c, rec)
}

// wakeMachine starts the chat's machine if it does not run.
func (s *Server) wakeMachine(c echo.Context, p owner) error {
	rec, err := s.chatParam(c, p)
	if err != nil {
		return err
	}
	if s.o.Machines == nil {
		return errNoSandboxes
	}
	ctx := c.Request().Context()
	view, err := s.ready(ctx, p, rec, "")
	if err != nil {
		return err
	}
	if err := s.o.Machines.Wake(ctx, view); err != nil {
		return err
	}
	rec.Machine = view.Machine
	return s.answerChat(c, rec)
}

// destroyMachine ends the chat's machine and removes its home. The chat and its
// files stay; its next use makes another machine.
func (s *Server) destroyMachine(c echo.Context, p owner) error {
	rec, err := s.chatParam(c, p)
	if err != nil {
		return err
	}
	if s.o.Machines == nil {
		return errNoSandboxes
	}
	ctx := c.Request().Context()
	// First the record, so that no call goes to a machine that is being destroyed.
	rec, err = update(ctx, s.records, p.chatKey(rec.Chat), func(now *chatRecord) (chatRecord, error) {
		if now == nil || !p.owns(*now) || now.Deleting {
			return chatRecord{}, notFound("chat", string(rec.Chat))
		}
		if now.Destroyed {
			return *now, errUnchanged
		}
		now.Destroyed = true
		return *now, nil
	})
	if err != nil {
		return err
	}
	if err := unlessNone(s.o.Machines.Destroy(ctx, rec.view(p.workspace))); err != nil {
		return err
	}
	return s.answerChat(c, rec)
}

// unlessNone drops the error of ending a machine that never was.
func unlessNone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
