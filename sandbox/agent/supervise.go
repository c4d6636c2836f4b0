package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	resultFD   = 3                      // where a supervisor writes its Result
	drainTime  = 100 * time.Millisecond // for output that comes after the leader's end
	killTime   = 5 * time.Second        // for a tree to die; a process in the kernel may hold out
	moreLikely = 500                    // added to a command's oom_score_adj, so that it dies before the agent
)

// A spec is what the agent tells a supervisor, as JSON on its stdin.
type spec struct {
	Dir     string        `json:"dir"` // absolute
	Shell   string        `json:"shell"`
	Script  string        `json:"script"`
	Env     []string      `json:"env"`
	Timeout time.Duration `json:"timeout"`
}

// A supervisor runs one command and is the subreaper of all its descendants.
type supervisor struct {
	spec
	started  time.Time
	leader   int
	status   *syscall.WaitStatus // of the leader, once it has ended
	timedOut bool
	oomsBase int64
	stdout   *headTail
	stderr   *headTail
	streams  sync.WaitGroup // the two readers of the command's output
}

// Supervise is the main function of a supervisor process; it returns the exit
// code. It ends when no descendant of the command is left, which may be long
// after the answer; SIGTERM ends the whole tree.
func Supervise() int {
	harden()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	ignoreSignals()
	warmThreads(2)

	s := &supervisor{stdout: newHeadTail(MaxOutput), stderr: newHeadTail(MaxOutput)}
	out := os.NewFile(resultFD, "result")
	unix.CloseOnExec(resultFD)
	work := make(chan error, 1)
	go func() { work <- json.NewDecoder(io.LimitReader(os.Stdin, MaxRequest)).Decode(&s.spec) }()
	select {
	case err := <-work: // it comes when there is a command: this may be the one in reserve
		if err != nil {
			return 1
		}
	case <-term:
		return 0
	}
	s.oomsBase = oomKills()
	if err := s.start(); err != nil {
		answer(out, supervised{Error: toError(fmt.Errorf("cannot start command: %w", err))})
		return 0
	}
	s.loop(out, children, term)
	return 0
}

// supervised is what a supervisor writes to its agent.
type supervised struct {
	Result *Result `json:"result,omitempty"`
	Error  *Error  `json:"error,omitempty"`
}

// answer writes the answer and closes the pipe. The agent may be gone: then
// nobody waits for it either.
func answer(out *os.File, a supervised) {
	json.NewEncoder(out).Encode(a)
	out.Close()
}

// start runs the leader in a session of its own, with nothing on stdin.
func (s *supervisor) start() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	outR, outW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer outW.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		outR.Close()
		return err
	}
	defer errW.Close()
	s.started = time.Now()
	p, err := os.StartProcess(s.Shell, []string{s.Shell, "-c", s.Script}, &os.ProcAttr{
		Dir: s.Dir, Env: s.Env, Files: []*os.File{null, outW, errW},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		outR.Close()
		errR.Close()
		// The error tells of the shell, whatever it was.
		if closed := unix.Access(s.Dir, unix.X_OK); closed != nil {
			err = &fs.PathError{Op: "enter", Path: s.Dir, Err: closed}
		}
		return err
	}
	s.leader = p.Pid
	raiseOOMScore(p.Pid)
	p.Release() // reap waits for it, together with all others
	s.streams.Add(2)
	go s.copyOut(s.stdout, outR)
	go s.copyOut(s.stderr, errR)
	return nil
}

// copyOut drains a stream until its last writer is gone; such a writer can
// outlive the answer and must not block.
func (s *supervisor) copyOut(to *headTail, from *os.File) {
	defer s.streams.Done()
	io.Copy(to, from)
	from.Close()
}

// loop serves the command's events until no descendant is left.
func (s *supervisor) loop(out *os.File, children, term <-chan os.Signal) {
	closed := make(chan struct{}) // both streams have ended
	go func() {
		s.streams.Wait()
		close(closed)
	}()
	var timeout, drain <-chan time.Time
	if s.Timeout > 0 {
		timeout = time.After(s.Timeout)
	}
	finish := func() {
		if out != nil {
			answer(out, supervised{Result: s.result()})
			out, timeout, drain, closed = nil, nil, nil, nil
			runtime.GC() // it may live long with its background children
		}
	}
	for {
		ended, none := s.reap()
		if ended {
			timeout = nil // what is left are background children: they may go on
			drain = time.After(drainTime)
		}
		if none && out == nil {
			return
		}
		ready := closed
		if s.status == nil {
			ready = nil
		}
		select {
		case <-children:
		case <-ready:
			finish()
		case <-drain:
			finish()
		case <-timeout:
			s.timedOut = true
			s.kill()
			finish()
		case <-term:
			s.kill()
			finish()
		}
	}
}

// kill ends the tree and collects the leader's status.
func (s *supervisor) kill() {
	killBelow(os.Getpid(), nil, time.Now().Add(killTime))
	s.reap()
}

// reap collects the children that have ended. It says whether the leader was
// among them and whether no child is left; as a subreaper's descendants all
// come to be its children, then none of them is left either.
func (s *supervisor) reap() (ended, none bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return ended, true
		case pid == 0:
			return ended, false
		case pid == s.leader && s.status == nil:
			s.status, ended = &status, true
		}
	}
}

// result describes the command's end.
func (s *supervisor) result() *Result {
	r := &Result{
		Stdout: s.stdout.take(), Stderr: s.stderr.take(), Reason: ReasonExit,
		DurationMS: time.Since(s.started).Milliseconds(), ExitCode: 128 + int(syscall.SIGKILL),
	}
	oom := oomKills() > s.oomsBase
	switch {
	case s.timedOut:
		r.Reason = ReasonTimeout
	case s.status == nil: // it could not be killed in time
		r.Reason = ReasonSignal
	case s.status.Signaled():
		r.Reason, r.ExitCode = ReasonSignal, 128+int(s.status.Signal())
		if oom && s.status.Signal() == syscall.SIGKILL {
			r.Reason = ReasonOOM
		}
	default:
		r.ExitCode = s.status.ExitStatus()
		// The shell reports a child's death by SIGKILL so.
		if oom && r.ExitCode == 128+int(syscall.SIGKILL) {
			r.Reason = ReasonOOM
		}
	}
	return r
}

// harden keeps the machine's other processes from reading or tracing this one.
func harden() {
	// It cannot fail with these arguments.
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// ignoreSignals keeps signals that any process of the machine may send from
// ending this one. They are caught and dropped, since ignoring them would be
// inherited by the commands.
func ignoreSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGABRT, syscall.SIGSEGV, syscall.SIGBUS,
		syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGVTALRM, syscall.SIGPROF,
		syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGIO, syscall.SIGPWR, syscall.SIGSTKFLT)
}

// warmThreads makes n threads that the Go runtime keeps and uses later: when
// the machine has no process ids left, the runtime would otherwise end the
// program for want of a thread.
func warmThreads(n int) {
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	ready.Add(n)
	done.Add(n)
	for range n {
		go func() {
			defer done.Done()
			runtime.LockOSThread()
			ready.Done()
			<-release
			runtime.UnlockOSThread()
		}()
	}
	ready.Wait()
	close(release)
	done.Wait()
}

// raiseOOMScore makes a process that has just been started, and what it starts,
// a likelier victim of the kernel. Where it cannot, the kernel chooses freely.
func raiseOOMScore(pid int) {
	path := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	before, err := os.ReadFile(path)
	if err != nil {
		return
	}
	if old, err := strconv.Atoi(strings.TrimSpace(string(before))); err == nil {
		os.WriteFile(path, []byte(strconv.Itoa(min(old+moreLikely, 1000))), 0)
	}
}
