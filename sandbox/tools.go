package sandbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"time"
	"unicode/utf8"

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

// bashAnswer is what bash answers. Output that was cut has a line in the place
// of what is missing; output that is not UTF-8 is also given byte for byte.
type bashAnswer struct {
	Stdout       string `json:"stdout"`
	Stderr       string `json:"stderr"`
	StdoutBase64 string `json:"stdout_base64,omitempty"`
	StderrBase64 string `json:"stderr_base64,omitempty"`
	StdoutBytes  int64  `json:"stdout_bytes"` // all that was written
	StderrBytes  int64  `json:"stderr_bytes"`
	ExitCode     int    `json:"exit_code"`
	Reason       string `json:"reason"`
	Truncated    bool   `json:"truncated"`
	DurationMS   int64  `json:"duration_ms"`
}

func parseBash(c Call, dir string) (tool, error) {
	var args struct {
		Command   string `json:"command"`
		TimeoutMS *int64 `json:"timeout_ms"`
	}
	if err := decodeArgs(c, &args); err != nil {
		return nil, err
	}
	timeout := DefaultTimeout
	switch {
	case args.Command == "":
		return nil, invalid(c, "command is empty")
	case len(args.Command) > agent.MaxCommand:
		return nil, &agent.Error{Code: agent.CodeTooLarge, Message: fmt.Sprintf(
			"cannot call bash: the command has %d bytes, at most %d are allowed: write it to a file first", len(args.Command), agent.MaxCommand)}
	case strings.ContainsRune(args.Command, 0):
		return nil, invalid(c, "command has a NUL byte")
	case args.TimeoutMS != nil && (*args.TimeoutMS < 1 || *args.TimeoutMS > agent.MaxTimeout.Milliseconds()):
		return nil, invalid(c, "timeout_ms is %d, allowed is 1 to %d", *args.TimeoutMS, agent.MaxTimeout.Milliseconds())
	case args.TimeoutMS != nil:
		timeout = time.Duration(*args.TimeoutMS) * time.Millisecond
	}
	return func(ctx context.Context, a *agentConn) (any, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, timeout+answerGrace,
			fmt.Errorf("the agent did not answer in time: %w", berth.ErrUnavailable))
		defer cancel()
		var r agent.Result
		err := a.call(ctx, agent.PathBash, agent.Command{Dir: dir, Script: args.Command, TimeoutMS: timeout.Milliseconds()}, &r, 4*agent.MaxOutput)
		if err != nil {
			return nil, err
		}
		return bashResult(r), nil
	}, nil
}

// bashResult makes the answer of what the agent said. Nothing of it is taken
// as given: numbers are clamped to what they can be.
func bashResult(r agent.Result) bashAnswer {
	a := bashAnswer{
		ExitCode: min(max(r.ExitCode, 0), 255), Reason: r.Reason, DurationMS: min(max(r.DurationMS, 0), math.MaxInt32),
		Truncated: r.Stdout.Truncated() || r.Stderr.Truncated(),
	}
	switch r.Reason {
	case agent.ReasonExit, agent.ReasonSignal, agent.ReasonTimeout, agent.ReasonOOM:
	default:
		a.Reason = agent.ReasonSignal
	}
	a.Stdout, a.StdoutBase64, a.StdoutBytes = outputText(r.Stdout)
	a.Stderr, a.StderrBase64, a.StderrBytes = outputText(r.Stderr)
	return a
}

// outputText gives an output as text, and byte for byte when it is not UTF-8.
func outputText(o agent.Output) (text, encoded string, total int64) {
	kept := int64(len(o.Head) + len(o.Tail))
	total = max(o.Total, kept)
	head, tail := o.Head, o.Tail
	var gap string
	if missing := total - kept; missing > 0 {
		gap = fmt.Sprintf("\n[... %d bytes left out ...]\n", missing)
		head, tail = wholeEnd(head), wholeStart(tail)
	}
	whole := make([]byte, 0, len(head)+len(gap)+len(tail))
	whole = append(append(append(whole, head...), gap...), tail...)
	if utf8.Valid(whole) {
		return string(whole), "", total
	}
	return strings.ToValidUTF8(string(whole), "\uFFFD"), base64.StdEncoding.EncodeToString(whole), total
}

// wholeEnd drops a character that the cut split at the end of p.
func wholeEnd(p []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if b := p[len(p)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(p[len(p)-i:]) {
				return p[:len(p)-i]
			}
			break
		}
	}
	return p
}

// wholeStart drops the rest of a character that the cut split at the start of p.
func wholeStart(p []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(p); i++ {
		if utf8.RuneStart(p[i]) {
			return p[i:]
		}
	}
	return p
}

func parseRead(c Call, dir string) (tool, error) {
	var args struct {
		Path     string `json:"path"`
		Offset   int64  `json:"offset"`
		MaxBytes *int64 `json:"max_bytes"`
	}
	if err := decodeArgs(c, &args); err != nil {
		return nil, err
	}
	limit := int64(agent.MaxFile)
	if args.MaxBytes != nil {
		limit = *args.MaxBytes
	}
	if args.Offset < 0 || limit < 0 || limit > agent.MaxFile {
		return nil, invalid(c, "offset is %d and max_bytes %d, allowed are 0 and up, and 0 to %d", args.Offset, limit, agent.MaxFile)
	}
	if err := checkPath(c, args.Path); err != nil {
		return nil, err
	}
	return func(ctx context.Context, a *agentConn) (any, error) {
		ctx, cancel := fileContext(ctx)
		defer cancel()
		var r agent.ReadResult
		err := a.call(ctx, agent.PathRead, agent.ReadRequest{Dir: dir, Path: args.Path, Offset: args.Offset, Limit: limit}, &r, limit/3*4+4096)
		if err != nil {
			return nil, err
		}
		answer := struct {
			Content   *string `json:"content,omitempty"`
			Base64    *string `json:"content_base64,omitempty"`
			Size      int64   `json:"size"`
			Truncated bool    `json:"truncated"`
		}{Size: max(r.Size, 0)}
		content := r.Content[:min(int64(len(r.Content)), limit)]
		answer.Truncated = args.Offset+int64(len(content)) < answer.Size
		if isText(content) {
			s := string(content)
			answer.Content = &s
		} else {
			s := base64.StdEncoding.EncodeToString(content)
			answer.Base64 = &s
		}
		return answer, nil
	}, nil
}

// isText says whether bytes are better given as text: UTF-8 without control
// characters but the usual ones; JSON would make six bytes of each.
func isText(p []byte) bool {
	for _, c := range p {
		if c < ' ' && !bytes.ContainsRune([]byte("\t\n\r\f\b\x1b"), rune(c)) {
			return false
		}
	}
	return utf8.Valid(p)
}

func parseWrite(c Call, dir string) (tool, error) {
	var args struct {
		Path    string  `json:"path"`
		Content *string `json:"content"`
		Base64  *string `json:"content_base64"`
	}
	if err := decodeArgs(c, &args); err != nil {
		return nil, err
	}
	if err := checkPath(c, args.Path); err != nil {
		return nil, err
	}
	var content []byte
	switch {
	case (args.Content == nil) == (args.Base64 == nil):
		return nil, invalid(c, "give exactly one of content and content_base64")
	case args.Content != nil:
		content = []byte(*args.Content)
	default:
		var err error
		if content, err = base64.StdEncoding.DecodeString(*args.Base64); err != nil {
			return nil, invalid(c, "content_base64 is not base64: %v", err)
		}
	}
	if len(content) > agent.MaxFile {
		return nil, &agent.Error{Code: agent.CodeTooLarge, Message: fmt.Sprintf(
			"cannot write %q: %d bytes are more than the %d allowed", args.Path, len(content), agent.MaxFile)}
	}
	return func(ctx context.Context, a *agentConn) (any, error) {
		ctx, cancel := fileContext(ctx)
		defer cancel()
		var r agent.WriteResult
		err := a.call(ctx, agent.PathWrite, agent.WriteRequest{Dir: dir, Path: args.Path, Content: content}, &r, 4096)
		if err != nil {
			return nil, err
		}
		return struct {
			Size int64 `json:"size"`
		}{int64(len(content))}, nil
	}, nil
}

// fileEntry is one entry of list_files.
type fileEntry struct {
	Name       string    `json:"name"`
	NameBase64 string    `json:"name_base64,omitempty"` // of a name that is not UTF-8
	Kind       string    `json:"kind"`
	Size       int64     `json:"size"`
	Mtime      time.Time `json:"mtime"`
}

func parseList(c Call, dir string) (tool, error) {
	var args struct {
		Path  string `json:"path"`
		Limit *int   `json:"limit"`
	}
	if err := decodeArgs(c, &args); err != nil {
		return nil, err
	}
	if args.Path == "" {
		args.Path = "."
	}
	limit := defaultEntries
	if args.Limit != nil {
		limit = *args.Limit
	}
	if limit < 1 || limit > agent.MaxEntries {
		return nil, invalid(c, "limit is %d, allowed is 1 to %d", limit, agent.MaxEntries)
	}
	if err := checkPath(c, args.Path); err != nil {
		return nil, err
	}
	return func(ctx context.Context, a *agentConn) (any, error) {
		ctx, cancel := fileContext(ctx)
		defer cancel()
		var r agent.ListResult
		if err := a.call(ctx, agent.PathList, agent.ListRequest{Dir: dir, Path: args.Path, Limit: limit}, &r, int64(limit)*512+4096); err != nil {
			return nil, err
		}
		if len(r.Entries) > limit {
			return nil, fmt.Errorf("cannot take the agent's answer: %d entries, %d were asked for: %w", len(r.Entries), limit, berth.ErrUnavailable)
		}
		answer := struct {
			Entries   []fileEntry `json:"entries"`
			Truncated bool        `json:"truncated"`
		}{make([]fileEntry, 0, len(r.Entries)), r.Truncated}
		for _, e := range r.Entries {
			answer.Entries = append(answer.Entries, listEntry(e))
		}
		return answer, nil
	}, nil
}

func listEntry(e agent.Entry) fileEntry {
	out := fileEntry{Name: string(e.Name), Size: max(e.Size, 0), Mtime: time.Unix(0, e.MtimeNS).UTC(), Kind: string(berth.KindOther)}
	switch berth.FileKind(e.Kind) {
	case berth.KindFile, berth.KindDir, berth.KindSymlink:
		out.Kind = e.Kind
	}
	if !utf8.Valid(e.Name) {
		out.Name = strings.ToValidUTF8(out.Name, "\uFFFD")
		out.NameBase64 = base64.StdEncoding.EncodeToString(e.Name)
	}
	return out
}

func checkPath(c Call, path string) error {
	switch {
	case path == "":
		return invalid(c, "path is empty")
	case len(path) > agent.MaxPathName:
		return invalid(c, "path has %d bytes, at most %d are allowed", len(path), agent.MaxPathName)
	case strings.ContainsRune(path, 0):
		return invalid(c, "path has a NUL byte")
	}
	return nil
}

func fileContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, fileTimeout, fmt.Errorf("the agent did not answer in time: %w", berth.ErrUnavailable))
}
