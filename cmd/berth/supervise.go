package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A child is one process of the installation that the supervisor keeps running.
type child struct {
	name string // the command of this binary, and the name of its log

	// config returns the document for descriptor 3. It is asked for at each
	// start, so that a restarted process gets the ports of the last one.
	config func() (any, error)

	// credential returns the user to run as; nil, and a nil result, mean root.
	credential func() *syscall.Credential

	// ready is given the line of descriptor 4 after each start. An error
	// counts as a start that did not succeed.
	ready func(line []byte) error

	startWithin time.Duration // until ready
	stopWithin  time.Duration // from SIGTERM to SIGKILL
}

// abandonWithin is how long a process whose start did not succeed may take to
// clear up after itself.
const abandonWithin = 15 * time.Second

// A supervisor starts processes in order, starts again one that dies, and
// stops all in the reverse order. Its methods are called from one goroutine.
type supervisor struct {
	opts supervisorOptions

	spawns  chan func()    // run by the one thread that is the parent of all processes
	threads sync.WaitGroup // that thread
	keepers []*keeper      // in start order
}

// supervisorOptions are those of newSupervisor; no field may be left empty
// except where it says so.
type supervisorOptions struct {
	exe    string                     // the binary to run
	args   func(name string) []string // its arguments for a child; nil = the name
	env    []string                   // its environment
	runDir string                     // holds a NAME.pid for each live process
	logDir string                     // holds a NAME.log for each
	logger *slog.Logger

	// A process that dies is started again after backoffMin, then after twice
	// as long up to backoffMax; one that lived for steady, or was asked to end
	// and did so cleanly, begins anew.
	backoffMin, backoffMax, steady time.Duration
}

// newSupervisor returns a supervisor without processes; the caller must Stop it.
func newSupervisor(opts supervisorOptions) *supervisor {
	if opts.args == nil {
		opts.args = func(name string) []string { return []string{name} }
	}
	s := &supervisor{opts: opts, spawns: make(chan func())}
	s.threads.Add(1)
	go func() {
		defer s.threads.Done()
		// The kernel sends the death signal when the thread that forked ends,
		// so all processes are forked by one thread that lives as long as s.
		// The goroutine returns locked: its thread ends with it.
		runtime.LockOSThread()
		// What it forks cannot gain rights by running another program, such as
		// one that is setuid. It cannot fail with these arguments.
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		for spawn := range s.spawns {
			spawn()
		}
	}()
	return s
}

// Start starts the process and returns when it serves; from then on it is kept
// running. An error tells the cause, with the end of what the process logged.
func (s *supervisor) Start(ctx context.Context, c child) error {
	k := &keeper{s: s, c: c, stop: make(chan struct{}), ended: make(chan struct{})}
	p, err := k.launch(ctx)
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", c.name, err)
	}
	k.proc = p
	s.keepers = append(s.keepers, k)
	go k.keep()
	return nil
}

// Stop stops all processes, the last one started first, and returns when none
// is left. Each gets its stopWithin to end by itself and is killed after that,
// at once when ctx ends; a process that was killed or did not exit with 0 makes
// an error.
func (s *supervisor) Stop(ctx context.Context) error {
	var errs []error
	for i := len(s.keepers) - 1; i >= 0; i-- {
		k := s.keepers[i]
		close(k.stop)
		<-k.ended // it no longer starts the process
		s.opts.logger.Debug("Stopping process", "process", k.c.name)
		if k.proc != nil {
			errs = append(errs, k.proc.stop(ctx, k.c.stopWithin))
		}
	}
	s.keepers = nil
	close(s.spawns)
	s.threads.Wait()
	return errors.Join(errs...)
}

// A keeper keeps one process running until it is told to stop.
type keeper struct {
	s     *supervisor
	c     child
	proc  *process // the live one, nil while there is none; keep's until ended
	stop  chan struct{}
	ended chan struct{} // closed when keep is done
}

func (k *keeper) keep() {
	defer close(k.ended)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // a start under way is given up when Stop comes
		select {
		case <-k.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	log := k.s.opts.logger
	backoff := k.s.opts.backoffMin
	for {
		started, clean := time.Now(), false
		if k.proc != nil {
			select {
			case <-k.stop:
				return
			case <-k.proc.done:
			}
			clean = k.proc.err == nil
			if clean {
				log.Warn("Process was asked to end; it is started again", "process", k.c.name)
			} else {
				log.Error("Process ended unexpectedly; it is started again", "process", k.c.name, "cause", k.proc.cause())
			}
			k.proc = nil
		}
		if clean || time.Since(started) >= k.s.opts.steady {
			backoff = k.s.opts.backoffMin
		}
		select {
		case <-k.stop:
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, k.s.opts.backoffMax)
		p, err := k.launch(ctx)
		if err != nil {
			if ctx.Err() == nil {
				log.Error("Cannot start process again; the next try follows", "process", k.c.name, "wait", backoff, "cause", err)
			}
			continue
		}
		k.proc = p
		log.Warn("Process serves again", "process", k.c.name, "pid", p.pid)
	}
}

// launch starts the process once and returns it when it serves.
func (k *keeper) launch(ctx context.Context) (*process, error) {
	conf, err := k.c.config()
	if err != nil {
		return nil, err
	}
	var cred *syscall.Credential
	if k.c.credential != nil {
		cred = k.c.credential()
	}
	p, err := k.s.spawn(k.c.name, conf, cred)
	if err != nil {
		return nil, err
	}
	line, err := p.awaitReady(ctx, k.c.startWithin)
	if err == nil && k.c.ready != nil {
		err = k.c.ready(line)
	}
	if err != nil {
		p.stop(context.Background(), min(k.c.stopWithin, abandonWithin)) // err says what matters
		return nil, err
	}
	return p, nil
}
