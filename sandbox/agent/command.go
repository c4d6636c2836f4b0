package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// graceTime is what a supervisor has to answer after its command's time is up
// or its call was given up; then it is killed too.
const graceTime = killTime + 2*time.Second

// commands starts supervisors and keeps the table of those that live.
type commands struct {
	argv  []string // how to start a supervisor
	shell string
	env   []string
	home  string

	mu   sync.Mutex // protects live, and is held while one is started: see sweep
	live map[int]*supervisorProcess
}

// supervisorProcess is a running supervisor.
type supervisorProcess struct {
	proc *os.Process
	done chan struct{} // closed when it has ended
}

// run runs one command and returns its result. When ctx ends before the result
// is there, the command's whole tree is killed.
func (c *commands) run(ctx context.Context, cmd Command) (*Result, error) {
	dir := filepath.Join(c.home, cmd.Dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make working directory: %w", err)
	}
	p, results, err := c.start(spec{
		Dir: dir, Shell: c.shell, Script: cmd.Script, Timeout: time.Duration(cmd.TimeoutMS) * time.Millisecond,
		Env: append(c.env[:len(c.env):len(c.env)], "PWD="+dir),
	})
	if err != nil {
		return nil, fmt.Errorf("cannot start supervisor: %w", err)
	}
	defer results.Close()

	type reply struct {
		supervised
		err error
	}
	replies := make(chan reply, 1)
	go func() { // ends when the supervisor answers or dies, or when results is closed
		var r reply
		r.err = json.NewDecoder(io.LimitReader(results, 4*MaxOutput)).Decode(&r.supervised)
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

// start starts a supervisor with its work, and returns the pipe on which it
// will answer.
func (c *commands) start(work spec) (*supervisorProcess, *os.File, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer inR.Close()
	defer inW.Close()
	resR, resW, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer resW.Close()

	c.mu.Lock()
	proc, err := os.StartProcess(c.argv[0], c.argv, &os.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Files: []*os.File{inR, null, null, resW},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		c.mu.Unlock()
		resR.Close()
		return nil, nil, err
	}
	p := &supervisorProcess{proc: proc, done: make(chan struct{})}
	c.live[proc.Pid] = p
	c.mu.Unlock()
	go c.wait(p)

	if err := json.NewEncoder(inW).Encode(work); err != nil {
		c.end(p)
		resR.Close()
		return nil, nil, err
	}
	return p, resR, nil
}

// wait collects the supervisor when it ends. Its tree has ended before it,
// unless it was killed.
func (c *commands) wait(p *supervisorProcess) {
	p.proc.Wait()
	c.mu.Lock()
	delete(c.live, p.proc.Pid)
	c.mu.Unlock()
	close(p.done)
}

// end asks a supervisor to end its tree and itself, and kills it when it does
// not; sweep then ends the tree.
func (c *commands) end(p *supervisorProcess) {
	p.proc.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return
	case <-time.After(graceTime):
	}
	p.proc.Kill()
	<-p.done
}

// endAll ends every command with all its background children.
func (c *commands) endAll() {
	c.mu.Lock()
	var all []*supervisorProcess
	for _, p := range c.live {
		all = append(all, p)
	}
	c.mu.Unlock()
	var wait sync.WaitGroup
	for _, p := range all {
		wait.Go(func() { c.end(p) })
	}
	wait.Wait()
}

// sweep ends and reaps the children of PID 1 that are no supervisors: the
// trees of supervisors that were killed. It keeps new supervisors from starting
// meanwhile, since one that is not in the table yet would be taken for such.
func (c *commands) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := func(pid int) bool { return c.live[pid] != nil }
	killBelow(os.Getpid(), known, time.Now().Add(killTime))
	for _, p := range processes() {
		if p.parent == os.Getpid() && p.zombie && !known(p.pid) {
			syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
		}
	}
}
