package api

import (
	"context"
	_ "embed"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
)

//go:embed openapi.yaml
var openAPI []byte

func (s *Server) getOpenAPI(c echo.Context) error {
	return c.Blob(http.StatusOK, "application/yaml; charset=utf-8", openAPI)
}

// getHealth says that the gateway serves; it looks at nothing else.
func (s *Server) getHealth(c echo.Context) error {
	return c.JSON(http.StatusOK, map[string]bool{"ok": true})
}

// getMe tells who the token or cookie stands for.
func (s *Server) getMe(c echo.Context, p principal) error {
	c.Response().Header().Set(cursorHeader, s.o.Feed.Cursor())
	return c.JSON(http.StatusOK, struct {
		Kind        kind     `json:"kind"`
		Workspace   berth.ID `json:"workspace,omitempty"`
		User        berth.ID `json:"user,omitempty"`
		Key         berth.ID `json:"key_id,omitempty"`
		PreviewHost string   `json:"preview_host"`
		Sandboxes   bool     `json:"sandboxes"`
		Tools       []string `json:"tools"`
	}{p.kind, p.workspace, p.user, p.key, s.o.PreviewHost, s.o.Machines != nil, s.o.Tools})
}

// maxStatusMachines bounds the machines that a status lists.
const maxStatusMachines = 1000

type machineStatus struct {
	Workspace berth.ID `json:"workspace"`
	Chat      berth.ID `json:"chat"`
	User      berth.ID `json:"user,omitempty"`
	EndUser   berth.ID `json:"end_user,omitempty"`
	Machine   Machine  `json:"machine"`
}

// getStatus tells an operator how the installation is, and an admin which
// machines its workspace has.
func (s *Server) getStatus(c echo.Context, p principal) error {
	ctx := c.Request().Context()
	status := struct {
		Started   time.Time       `json:"started"`
		Sandboxes bool            `json:"sandboxes"`
		Files     json.RawMessage `json:"files,omitempty"` // the file system's own words, for operators
		Machines  []machineStatus `json:"machines"`        // those that are or were in use
		Truncated bool            `json:"truncated,omitempty"`
	}{Started: s.started.UTC(), Sandboxes: s.o.Machines != nil, Machines: []machineStatus{}}
	prefix := "chats/"
	if p.kind == kindAdmin {
		prefix += string(p.workspace) + "/"
	} else {
		var err error
		if status.Files, err = s.o.Trees.Status(ctx); err != nil {
			return err
		}
	}
	var err error
	if s.o.Machines != nil {
		status.Machines, status.Truncated, err = s.machineStatuses(ctx, prefix)
	}
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, status)
}

// machineStatuses returns the machines of chats that have had one.
func (s *Server) machineStatuses(ctx context.Context, prefix string) ([]machineStatus, bool, error) {
	recs, err := s.records.List(ctx, prefix)
	if err != nil {
		return nil, false, err
	}
	out := []machineStatus{}
	for _, rec := range recs {
		chat, err := decodeRecord[chatRecord](rec)
		if err != nil {
			return nil, false, err
		}
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
		ws := berth.ID(strings.Split(rec.Key, "/")[1])
		out = append(out, machineStatus{Workspace: ws, Chat: chat.Chat, User: chat.User, EndUser: chat.EndUser, Machine: m})
	}
	return out, false, nil
}
