package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"berth"
)

// errAgentGone is the cause of calls that a lost connection ended.
var errAgentGone = fmt.Errorf("the machine's agent is gone: %w", berth.ErrUnavailable)

// How long an agent waits that lost its connection soon: longer each time.
const (
	shortPause = 5 * time.Millisecond
	longPause  = time.Second
)

// A link is the gateway's end of one slot: it listens on the slot's socket and
// accepts one connection, from the container's init only. While that lasts the
// socket is closed and away, so that nothing in the machine can knock; after a
// loss it listens again.
type link struct {
	slot   berth.ID
	dir    string // the slot's ctl directory
	logger *slog.Logger
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when serve has returned

	mu    sync.Mutex // protects what follows
	pid   int        // of the container's init; 0 until it is known
	known chan struct{}
	conn  *agentConn    // nil while there is none
	fresh chan struct{} // closed and renewed when conn changes
}

// openLink begins to listen on a slot's socket. The container is started
// afterwards, and expect is called with its init's process id.
func openLink(slotsDir string, slot berth.ID, logger *slog.Logger) (*link, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &link{
		slot: slot, dir: filepath.Join(slotsDir, string(slot), "ctl"), logger: logger, ctx: ctx, cancel: cancel,
		ended: make(chan struct{}), known: make(chan struct{}), fresh: make(chan struct{}),
	}
	first, err := l.listen()
	if err != nil {
		cancel(err)
		return nil, err
	}
	go l.serve(first)
	return l, nil
}

// listen makes the socket. The path goes through a descriptor of the directory:
// a socket's address holds 107 bytes, which a state directory may exceed.
func (l *link) listen() (*net.UnixListener, error) {
	dir, err := os.Open(l.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open directory of slot %s: %w", l.slot, err)
	}
	defer dir.Close()
	path := fmt.Sprintf("/proc/self/fd/%d/agent.sock", dir.Fd())
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot clear socket of slot %s: %w", l.slot, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot listen on socket of slot %s: %w", l.slot, err)
	}
	listener.SetUnlinkOnClose(false) // the path is through a descriptor that is closed by then
	// The agent's uid is another one; who connects is judged by its process id.
	if err := os.Chmod(path, 0o666); err != nil {
		listener.Close()
		return nil, fmt.Errorf("cannot open socket of slot %s to its agent: %w", l.slot, err)
	}
	return listener, nil
}

// expect tells whose connection is the agent's.
func (l *link) expect(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pid == 0 && pid > 0 {
		l.pid = pid
		close(l.known)
	}
}

// serve takes one connection after the other until the link is closed.
func (l *link) serve(listener *net.UnixListener) {
	defer close(l.ended)
	var pause time.Duration // before the next connection
	for {
		conn, err := l.accept(listener)
		began := time.Now()
		listener.Close()
		os.Remove(filepath.Join(l.dir, "agent.sock"))
		if err == nil {
			l.set(conn)
			select {
			case <-conn.done:
			case <-l.ctx.Done():
			}
			l.set(nil)
			conn.close()
		}
		// An agent that dials and hangs up must not keep the gateway busy.
		if pause = min(max(2*pause, shortPause), longPause); time.Since(began) > longPause {
			pause = 0
		}
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
			return
		}
		if listener, err = l.listen(); err != nil {
			l.logger.Warn("Cannot listen for agent", "slot", l.slot, "err", err)
			l.cancel(err)
			return
		}
	}
}

// accept returns the first connection that the container's init makes, or why
// it is no good.
func (l *link) accept(listener *net.UnixListener) (*agentConn, error) {
	stop := context.AfterFunc(l.ctx, func() { listener.Close() })
	defer stop()
	for {
		c, err := listener.AcceptUnix()
		if err != nil {
			if l.ctx.Err() != nil {
				return nil, l.ctx.Err()
			}
			// Out of descriptors, say: what the machine keeps in its queue waits.
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-l.ctx.Done():
				return nil, l.ctx.Err()
			}
		}
		select {
		case <-l.known:
		case <-l.ctx.Done():
			c.Close()
			return nil, l.ctx.Err()
		}
		if cred, err := peerCred(c); err != nil || int(cred.Pid) != l.pid {
			c.Close()
			continue
		}
		conn, err := newAgentConn(c)
		if err != nil {
			c.Close()
		}
		return conn, err
	}
}

func (l *link) set(conn *agentConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
	close(l.fresh)
	l.fresh = make(chan struct{})
}

// wait returns the agent's connection as soon as there is one.
func (l *link) wait(ctx context.Context) (*agentConn, error) {
	for {
		l.mu.Lock()
		conn, fresh := l.conn, l.fresh
		l.mu.Unlock()
		if conn != nil && !conn.lost() {
			return conn, nil
		}
		select {
		case <-fresh:
		case <-l.ctx.Done():
			return nil, context.Cause(l.ctx)
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot reach the agent of slot %s: %w", l.slot, context.Cause(ctx))
		}
	}
}

// current returns the connection, or nil while there is none.
func (l *link) current() *agentConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || l.conn.lost() {
		return nil
	}
	return l.conn
}

// close ends the connection with all its calls, and removes the socket.
func (l *link) close() {
	l.cancel(errAgentGone)
	<-l.ended
}

// newAgentConn speaks HTTP/2 as the client over a connection that was accepted.
func newAgentConn(c net.Conn) (*agentConn, error) {
	a := &agentConn{done: make(chan struct{})}
	a.net = &guardedConn{Conn: c, lost: a.markLost, allowance: maxIdleBytes, last: time.Now()}
	transport := &http2.Transport{
		AllowHTTP: true, DisableCompression: true,
		MaxHeaderListSize: 16 << 10,
		ReadIdleTimeout:   15 * time.Second, // then a ping asks whether it lives
		PingTimeout:       15 * time.Second,
		WriteByteTimeout:  15 * time.Second,
	}
	client, err := transport.NewClientConn(a.net)
	if err != nil {
		return nil, fmt.Errorf("cannot speak HTTP/2 with agent: %w", err)
	}
	a.client = client
	return a, nil
}
