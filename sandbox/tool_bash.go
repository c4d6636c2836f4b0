package sandbox

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"berth"
	"berth/sandbox/agent"
)

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
