package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A process is one started child process, see child.go for what it is told and
// what it answers.
type process struct {
	name  string
	pid   int
	ready *os.File      // our end of descriptor 4
	log   *childLog     // what it writes to stdout and stderr
	done  chan struct{} // closed when it has ended and was waited for
	err   error         // how it ended; valid after done
}

// oomScoreAdj makes the kernel end machines before the processes that serve them.
const oomScoreAdj = "-900"

// spawn starts the binary with its configuration on descriptor 3.
func (s *supervisor) spawn(name string, conf any, cred *syscall.Credential) (*process, error) {
	doc, err := json.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("cannot encode its configuration: %w", err)
	}
	confR, confW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer confR.Close()
	defer confW.Close()
	readyR, readyW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer readyW.Close()
	log, err := openChildLog(s.opts.logDir, name, s.opts.logger)
	if err != nil {
		readyR.Close()
		return nil, err
	}
	cmd := exec.Command(s.opts.exe, s.opts.args(name)...)
	cmd.Env = s.opts.env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{confR, readyW}
	cmd.WaitDelay = 2 * time.Second // something it started may hold its stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM, Credential: cred}
	if err := s.start(cmd); err != nil {
		readyR.Close()
		log.Close()
		return nil, err
	}
	p := &process{name: name, pid: cmd.Process.Pid, ready: readyR, log: log, done: make(chan struct{})}
	pidFile := filepath.Join(s.opts.runDir, name+".pid")
	go func() {
		p.err = cmd.Wait()
		os.Remove(pidFile)
		log.Close()
		close(p.done)
	}()
	if err := p.register(pidFile); err != nil {
		p.kill()
		return nil, err
	}
	// A child that ends without reading shows itself by its missing ready line.
	confW.SetWriteDeadline(time.Now().Add(10 * time.Second))
	confW.Write(doc)
	return p, nil
}

// start forks on the supervisor's own thread.
func (s *supervisor) start(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	s.spawns <- func() { started <- cmd.Start() }
	return <-started
}

// register writes the pid file, by which the next start finds what a killed
// supervisor left, and protects the process when memory is short.
func (p *process) register(pidFile string) error {
	started, err := startTime(p.pid)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%d %s\n", p.pid, started)
	if err := os.WriteFile(pidFile, []byte(line), 0o600); err != nil {
		return fmt.Errorf("cannot write pid file: %w", err)
	}
	// Without CAP_SYS_RESOURCE this is refused; doctor says so.
	os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.pid), []byte(oomScoreAdj), 0)
	return nil
}

// awaitReady returns the line of descriptor 4.
func (p *process) awaitReady(ctx context.Context, within time.Duration) ([]byte, error) {
	defer p.ready.Close()
	p.ready.SetReadDeadline(time.Now().Add(within))
	defer context.AfterFunc(ctx, func() { p.ready.SetReadDeadline(time.Now()) })()
	line, err := bufio.NewReader(io.LimitReader(p.ready, 1<<20)).ReadBytes('\n')
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("it was not ready within %v%s", within, p.log.Tail())
	case err != nil: // it ends: its exit status says more
		select {
		case <-p.done:
			return nil, errors.New(p.cause())
		case <-time.After(10 * time.Second):
			return nil, fmt.Errorf("it closed descriptor %d without a line%s", readyFD, p.log.Tail())
		}
	}
	var doc struct {
		Ready bool `json:"ready"`
	}
	if err := json.Unmarshal(line, &doc); err != nil || !doc.Ready {
		return nil, fmt.Errorf("it announced %q instead of a ready line", strings.TrimSpace(string(line)))
	}
	return line, nil
}

// cause tells how a process that is done ended, with the end of its log.
func (p *process) cause() string {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return how + p.log.Tail()
}

// stop asks the process to end, and kills it when it does not within the time
// or when ctx ends.
func (p *process) stop(ctx context.Context, within time.Duration) error {
	syscall.Kill(p.pid, syscall.SIGTERM)
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("cannot stop %s cleanly: %s", p.name, p.cause())
		}
		return nil
	case <-timer.C:
		p.kill()
		return fmt.Errorf("cannot stop %s cleanly: it did not end within %v and was killed%s", p.name, within, p.log.Tail())
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("cannot stop %s cleanly: it was killed: %w", p.name, context.Cause(ctx))
	}
}

// kill ends the process and what it started, and waits for it.
func (p *process) kill() {
	syscall.Kill(-p.pid, syscall.SIGKILL)
	<-p.done
}
