package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// graceTime is what a supervisor has to answer after its command's time is up
// or its call was given up; then it is killed too.
const graceTime = killTime + 2*time.Second

// commands runs commands.
type commands struct {
	supervisors
	shell string
	env   []string
	home  string
}

// run runs one command and returns its result. When ctx ends before the result
// is there, the command's whole tree is killed.
func (c *commands) run(ctx context.Context, cmd Command) (*Result, error) {
	dir := filepath.Join(c.home, cmd.Dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make working directory: %w", err)
	}
	p, err := c.begin(spec{
		Dir: dir, Shell: c.shell, Script: cmd.Script, Timeout: time.Duration(cmd.TimeoutMS) * time.Millisecond,
		Env: append(c.env[:len(c.env):len(c.env)], "PWD="+dir),
	})
	if err != nil {
		return nil, fmt.Errorf("cannot start supervisor: %w", err)
	}
	defer c.prepare() // the next command finds a supervisor that is up
	defer p.results.Close()

	type reply struct {
		supervised
		err error
	}
	replies := make(chan reply, 1)
	go func() { // ends when the supervisor answers or dies, or when the pipe is closed
		var r reply
		r.err = json.NewDecoder(io.LimitReader(p.results, 4*MaxOutput)).Decode(&r.supervised)
		replies <- r
	}()
	limit := graceTime
	if cmd.TimeoutMS > 0 {
		limit += time.Duration(cmd.TimeoutMS) * time.Millisecond
	}
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	if cmd.TimeoutMS == 0 {
		deadline.Stop()
	}
	select {
	case r := <-replies:
		switch {
		case r.err != nil: // it was killed: only the command can have done that
			return lost("berth: the command killed its own supervisor: its output is lost\n"), nil
		case r.Error != nil:
			return nil, r.Error
		case r.Result == nil:
			return nil, errors.New("cannot read the supervisor's answer: it is empty")
		}
		return r.Result, nil
	case <-ctx.Done():
		c.end(p)
		return nil, context.Cause(ctx)
	case <-deadline.C: // somebody stopped the supervisor
		c.end(p)
		r := lost("berth: the command's supervisor did not answer: its output is lost\n")
		r.Reason = ReasonTimeout
		return r, nil
	}
}

// lost is the result of a command whose supervisor could not give one.
func lost(note string) *Result {
	return &Result{
		Stderr: Output{Head: []byte(note), Total: int64(len(note))},
		Reason: ReasonSignal, ExitCode: 128 + int(syscall.SIGKILL),
	}
}
