package api

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
)

// The largest bodies of tool calls.
const (
	maxArgs      = 1 << 20
	maxWriteArgs = 16 << 20 // of write_file, whose body holds the file
)

// callHeader carries the id of a tool call in its answer. Changes that overlap
// the call name it.
const callHeader = "Berth-Call"

// callTool runs a tool in the chat's machine, which is made or woken for it.
func (s *Server) callTool(c echo.Context, p owner) error {
	tool, err := param(c, "tool")
	if err != nil {
		return err
	}
	if !slices.Contains(s.o.Tools, tool) {
		return fmt.Errorf("cannot find tool %.140q, there are %s: %w", tool, strings.Join(s.o.Tools, ", "), fs.ErrNotExist)
	}
	limit := int64(maxArgs)
	if tool == "write_file" {
		limit = maxWriteArgs
	}
	ctx := c.Request().Context()
	rec, err := s.chatParam(c, p)
	if err != nil {
		return err
	}
	if s.o.Machines == nil {
		return errNoSandboxes
	}
	if isBulk(tool) { // before anything large is in memory
		giveBack, err := s.bulk.take(ctx, p.name())
		if err != nil {
			return err
		}
		defer giveBack()
		bodyDeadline(c, time.Now().Add(s.o.TransferTime))
	}
	body, err := readBody(c, limit)
	if err != nil {
		return err
	}
	expert, args, err := parseArgs(body)
	if err != nil {
		return err
	}
	view, err := s.ready(ctx, p, rec, expert)
	if err != nil {
		return err
	}
	call := Call{ID: newCallID(), Expert: expert, Tool: tool, Args: args}
	answer, err := s.o.Machines.Run(ctx, view, call)
	if err != nil {
		return err
	}
	c.Response().Header().Set(callHeader, string(call.ID))
	return c.JSONBlob(http.StatusOK, answer)
}

func newCallID() berth.ID { return berth.ID("c" + strings.ToLower(rand.Text()[:20])) }

// parseArgs splits the body of a tool call, one JSON object, into the expert
// and the tool's own arguments.
func parseArgs(body []byte) (berth.ID, json.RawMessage, error) {
	args := make(map[string]json.RawMessage)
	if len(bytes.TrimSpace(body)) > 0 {
		d := json.NewDecoder(bytes.NewReader(body))
		if err := d.Decode(&args); err != nil || args == nil {
			return "", nil, fmt.Errorf("cannot parse arguments: the body must be one JSON object%s: %w", because(err), fs.ErrInvalid)
		}
		if _, err := d.Token(); err != io.EOF {
			return "", nil, fmt.Errorf("cannot parse arguments: there is more than one JSON value: %w", fs.ErrInvalid)
		}
	}
	expert := berth.DefaultExpert
	if raw, ok := args["expert"]; ok {
		var name string
		if err := json.Unmarshal(raw, &name); err != nil {
			return "", nil, fmt.Errorf("cannot parse arguments: \"expert\" must be a string: %w", fs.ErrInvalid)
		}
		var err error
		if expert, err = berth.ParseExpert(name); err != nil {
			return "", nil, err
		}
		delete(args, "expert")
	}
	own, err := json.Marshal(args)
	return expert, own, err
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return " (" + err.Error() + ")"
}
