package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
)

// maxStatusMachines bounds the machines that a status lists.
const maxStatusMachines = 1000

type machineCounts struct {
	Running int `json:"running"`
	Warm    int `json:"warm"`
}

type machineStatus struct {
	Chat    berth.ID `json:"chat"`
	User    berth.ID `json:"user,omitempty"`
	EndUser berth.ID `json:"end_user,omitempty"`
	Machine Machine  `json:"machine"`
}

type statusAnswer struct {
	Started   time.Time       `json:"started"`
	Sandboxes bool            `json:"sandboxes"`
	Files     json.RawMessage `json:"files,omitempty"`              // operators: the file system's own words
	Machines  *machineCounts  `json:"machines,omitempty"`           // operators
	Workspace []machineStatus `json:"workspace_machines,omitempty"` // admins: those that are or were in use
	Truncated bool            `json:"truncated,omitempty"`
}

// getStatus tells an operator how the installation is, and an admin which
// machines its workspace has.
func (s *Server) getStatus(c echo.Context, p principal) error {
	ctx := c.Request().Context()
	status := statusAnswer{Started: s.started.UTC(), Sandboxes: s.o.Machines != nil}
	var err error
	if p.kind == kindAdmin {
		status.Workspace, status.Truncated, err = s.workspaceMachines(ctx, p.workspace)
	} else {
		status.Machines = &machineCounts{}
		if s.o.Machines != nil {
			status.Machines.Running, status.Machines.Warm = s.o.Machines.Counts()
		}
		status.Files, err = s.o.Trees.Status(ctx)
	}
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, status)
}

// workspaceMachines returns the machines of a workspace that are or were in use.
func (s *Server) workspaceMachines(ctx context.Context, ws berth.ID) ([]machineStatus, bool, error) {
	if s.o.Machines == nil {
		return nil, false, nil
	}
	chats, err := list[chatRecord](ctx, s.records, "chats/"+string(ws)+"/")
	if err != nil {
		return nil, false, err
	}
	var out []machineStatus
	for _, chat := range chats {
		m, err := s.machine(ctx, chat)
		if err != nil {
			return nil, false, err
		}
		if m.State == "waiting" {
			continue
		}
		if len(out) == maxStatusMachines {
			return out, true, nil
		}
		out = append(out, machineStatus{Chat: chat.Chat, User: chat.User, EndUser: chat.EndUser, Machine: m})
	}
	return out, false, nil
}
