package agent

import (
	"encoding/json"
	"os"
	"sync"
	"syscall"
	"time"
)

// supervisors is the table of the supervisors that live, with one of them in
// reserve: starting one takes longer than most commands.
type supervisors struct {
	argv []string // how to start one

	// mu protects what follows. It is held while a supervisor is started: one
	// that is not in the table would be taken for an orphan by sweep.
	mu     sync.Mutex
	live   map[int]*supervisorProcess
	spare  *supervisorProcess
	closed bool
}

// supervisorProcess is a running supervisor.
type supervisorProcess struct {
	proc    *os.Process
	work    *os.File      // takes its spec; nil when it has it
	results *os.File      // gives its answer
	done    chan struct{} // closed when it has ended
}

// begin gives a command to a supervisor. The caller closes its results.
func (s *supervisors) begin(work spec) (*supervisorProcess, error) {
	s.mu.Lock()
	p := s.spare
	s.spare = nil
	if p != nil {
		select {
		case <-p.done: // something in the machine killed it
			p.work.Close()
			p.results.Close()
			p = nil
		default:
		}
	}
	var err error
	if p == nil {
		p, err = s.startLocked()
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	err = json.NewEncoder(p.work).Encode(work)
	p.work.Close()
	if err != nil {
		s.end(p)
		p.results.Close()
		return nil, err
	}
	return p, nil
}

// prepare starts the supervisor in reserve if there is none. Without one the
// next command starts its own, so an error is of no consequence.
func (s *supervisors) prepare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare == nil && !s.closed {
		s.spare, _ = s.startLocked()
	}
}

func (s *supervisors) startLocked() (*supervisorProcess, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inR.Close()
	resR, resW, err := os.Pipe()
	if err != nil {
		inW.Close()
		return nil, err
	}
	defer resW.Close()
	proc, err := os.StartProcess(s.argv[0], s.argv, &os.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Files: []*os.File{inR, null, null, resW},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		inW.Close()
		resR.Close()
		return nil, err
	}
	p := &supervisorProcess{proc: proc, work: inW, results: resR, done: make(chan struct{})}
	s.live[proc.Pid] = p
	go s.wait(p)
	return p, nil
}

// wait collects the supervisor when it ends. Its tree has ended before it,
// unless it was killed.
func (s *supervisors) wait(p *supervisorProcess) {
	p.proc.Wait()
	s.mu.Lock()
	delete(s.live, p.proc.Pid)
	s.mu.Unlock()
	close(p.done)
}

// end asks a supervisor to end its tree and itself, and kills it when it does
// not; sweep then ends the tree.
func (s *supervisors) end(p *supervisorProcess) {
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
func (s *supervisors) endAll() {
	s.mu.Lock()
	if s.spare != nil {
		s.spare.work.Close()
		s.spare.results.Close()
		s.spare = nil
	}
	var all []*supervisorProcess
	for _, p := range s.live {
		all = append(all, p)
	}
	s.mu.Unlock()
	var wait sync.WaitGroup
	for _, p := range all {
		wait.Go(func() { s.end(p) })
	}
	wait.Wait()
}

// close ends every command, and no further supervisor is kept in reserve.
func (s *supervisors) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.endAll()
}

// sweep ends and reaps the children of PID 1 that are no supervisors: the
// trees of supervisors that were killed.
func (s *supervisors) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := func(pid int) bool { return s.live[pid] != nil }
	killBelow(os.Getpid(), known, time.Now().Add(killTime))
	for _, p := range processes() {
		if p.parent == os.Getpid() && p.zombie && !known(p.pid) {
			syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
		}
	}
}
