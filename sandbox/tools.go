package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"berth"
	"berth/sandbox/agent"
)

// Bounds of a tool call.
const (
	MaxArgs        = agent.MaxRequest // bytes of a call's arguments
	DefaultTimeout = 120 * time.Second
	fileTimeout    = time.Minute      // of the file tools
	answerGrace    = 15 * time.Second // beyond a command's timeout, for its tree to die
	defaultEntries = 1000
)

// Tools are the names of the tools, for messages and catalogues.
var Tools = [...]string{"bash", "read_file", "write_file", "list_files"}

// A Call is one use of a tool.
type Call struct {
	ID     berth.ID // names the call in the change feed
	Expert berth.ID // whose working directory it runs in; one of the view's experts
	Tool   string
	Args   json.RawMessage // a JSON object
}

// A tool is a call whose arguments were checked, ready to be sent.
type tool func(ctx context.Context, a *agentConn) (any, error)

// parseCall checks a call without touching a machine. The error matches
// fs.ErrInvalid, or fs.ErrNotExist for an unknown tool. dir is the working
// directory below the home.
func parseCall(c Call, dir string) (tool, error) {
	if len(c.Args) > MaxArgs {
		return nil, &agent.Error{Code: agent.CodeTooLarge, Message: fmt.Sprintf(
			"cannot call %s: its arguments have %d bytes, at most %d are allowed", c.Tool, len(c.Args), MaxArgs)}
	}
	switch c.Tool {
	case "bash":
		return parseBash(c, dir)
	case "read_file":
		return parseRead(c, dir)
	case "write_file":
		return parseWrite(c, dir)
	case "list_files":
		return parseList(c, dir)
	}
	name := c.Tool
	if len(name) > 64 {
		name = name[:64] + "..."
	}
	return nil, fmt.Errorf("unknown tool %q: the tools are %s: %w", name, strings.Join(Tools[:], ", "), fs.ErrNotExist)
}

// decodeArgs decodes a call's arguments; none at all are an empty object.
func decodeArgs(c Call, into any) error {
	args := c.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if err := decodeStrict(args, into); err != nil {
		return fmt.Errorf("cannot decode arguments of %s: %v: %w", c.Tool, err, fs.ErrInvalid)
	}
	return nil
}

func invalid(c Call, format string, args ...any) error {
	return fmt.Errorf("cannot call %s: %s: %w", c.Tool, fmt.Sprintf(format, args...), fs.ErrInvalid)
}
