// Package agent is what runs inside a machine: it dials the gateway's socket
// and serves commands and files over that one connection, HTTP/2 with JSON.
//
// Terms. The agent is PID 1 of the machine. A supervisor is one process per
// command, the subreaper of all that the command starts, so that nothing the
// command leaves behind, by double fork or setsid, gets out of its reach. A
// leader is the command's own process, the shell.
//
// Guarantees. A command's answer comes when its leader has ended and a short
// drain is over, whatever a background child still holds. On timeout, cancel
// and End the whole tree dies. Output is kept within a budget per stream, head
// and tail, and the rest is drained, so memory is bounded and no writer blocks.
// A process that kills its supervisor ends its whole tree: PID 1 has no children
// but supervisors and kills every other one.
//
// Limits. The agent is part of the hostile machine. It holds no secret, and the
// gateway bounds and checks everything it says. The paths that file services
// take are looked up by an ordinary process of the machine's user: a hostile
// path reaches what the machine can reach and no more.
package agent

import (
	"fmt"
	"io/fs"
	"time"
)

// SocketPath is where the agent finds the gateway inside the machine.
const SocketPath = "/run/berth/agent.sock"

// The bounds of what the services take and give. The gateway holds the agent
// to them.
const (
	MaxCommand  = 100 << 10        // bytes of a shell command: one argument of execve holds 128 KiB
	MaxPathName = 4096             // bytes of a path
	MaxFile     = 10 << 20         // bytes that are read or written at once
	MaxEntries  = 10_000           // entries of one listing
	MaxTimeout  = 10 * time.Minute // of a command
	MaxOutput   = 256 << 10        // bytes kept of each of stdout and stderr

	// MaxRequest bounds the JSON of a request: a file of MaxFile in base64 and
	// the rest of the request.
	MaxRequest = MaxFile/3*4 + 64<<10
	// MaxMessage bounds the text of an error.
	MaxMessage = 2048
)

// The services, each a POST with one JSON value in and out.
const (
	PathBash  = "/v1/bash"
	PathRead  = "/v1/read"
	PathWrite = "/v1/write"
	PathList  = "/v1/list"
	PathEnd   = "/v1/end" // ends every process but the agent
)

// A Command is the request of PathBash.
type Command struct {
	Dir       string `json:"dir"` // working directory below the home; made if missing
	Script    string `json:"script"`
	TimeoutMS int64  `json:"timeout_ms"` // 0 is none; counts from the leader's start
}

// The ways in which a command ends.
const (
	ReasonExit    = "exit"    // the leader called exit
	ReasonSignal  = "signal"  // a signal that berth did not send ended it
	ReasonTimeout = "timeout" // berth ended the tree when the time was up
	ReasonOOM     = "oom"     // the machine's memory was exhausted and the kernel chose it
)

// A Result is the answer of PathBash.
type Result struct {
	Stdout     Output `json:"stdout"`
	Stderr     Output `json:"stderr"`
	ExitCode   int    `json:"exit_code"` // 128 and the signal's number for a death by signal
	Reason     string `json:"reason"`
	DurationMS int64  `json:"duration_ms"`
}

// An Output is what one stream of a command wrote. When Total is more than
// Head and Tail hold, what was between them is lost.
type Output struct {
	Head  []byte `json:"head,omitempty"`
	Tail  []byte `json:"tail,omitempty"`
	Total int64  `json:"total"`
}

// Truncated says that the output holds less than was written.
func (o Output) Truncated() bool { return o.Total > int64(len(o.Head)+len(o.Tail)) }

// A ReadRequest asks for the bytes of a regular file from Offset on, at most
// Limit of them. A relative path is taken from Dir.
type ReadRequest struct {
	Dir    string `json:"dir"`
	Path   string `json:"path"`
	Offset int64  `json:"offset,omitempty"`
	Limit  int64  `json:"limit"`
}

// A ReadResult is the answer of PathRead. Size is the whole file's.
type ReadResult struct {
	Content []byte `json:"content"`
	Size    int64  `json:"size"`
}

// A WriteRequest replaces the content of a file in one step: a reader sees the
// old content or the new. Missing parents are made, an existing file keeps its
// mode, a symbolic link is followed.
type WriteRequest struct {
	Dir     string `json:"dir"`
	Path    string `json:"path"`
	Content []byte `json:"content"`
}

// A WriteResult is the answer of PathWrite.
type WriteResult struct {
	Size int64 `json:"size"`
}

// A ListRequest asks for the entries of a directory by name, at most Limit.
type ListRequest struct {
	Dir   string `json:"dir"`
	Path  string `json:"path"`
	Limit int    `json:"limit"`
}

// A ListResult is the answer of PathList.
type ListResult struct {
	Entries   []Entry `json:"entries"`
	Truncated bool    `json:"truncated"`
}

// An Entry is one name of a directory. A name is any bytes but "/" and NUL.
type Entry struct {
	Name    []byte `json:"name"`
	Kind    string `json:"kind"` // a berth.FileKind
	Size    int64  `json:"size"`
	MtimeNS int64  `json:"mtime_ns"`
}

// An Error is the body of an answer that is not 200.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// The codes of an Error.
const (
	CodeInvalid    = "invalid"
	CodeNotFound   = "not_found"
	CodeExists     = "exists"
	CodePermission = "permission" // also a read-only place
	CodeTooLarge   = "too_large"
	CodeFull       = "full" // no space, quota, processes or memory left
	CodeInternal   = "internal"
)

func (e *Error) Error() string { return e.Message }

// Is makes errors.Is work with the sentinels of io/fs.
func (e *Error) Is(target error) bool {
	switch e.Code {
	case CodeInvalid, CodeTooLarge:
		return target == fs.ErrInvalid
	case CodeNotFound:
		return target == fs.ErrNotExist
	case CodeExists:
		return target == fs.ErrExist
	case CodePermission:
		return target == fs.ErrPermission
	}
	return false
}

func invalidf(format string, args ...any) *Error {
	return &Error{CodeInvalid, fmt.Sprintf(format, args...)}
}
