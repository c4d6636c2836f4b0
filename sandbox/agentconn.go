package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"berth"
	"berth/sandbox/agent"
)

const (
	// maxIdleBytes is what an agent may send unasked; it grows back slowly.
	maxIdleBytes   = 1 << 20
	idleBytesASec  = 4 << 10
	callOverhead   = 256 << 10 // for the frames and headers of one answer
	maxErrorAnswer = 16 << 10
)

// errFlood ends the connection of an agent that sends more than it was asked for.
var errFlood = errors.New("the agent sends more than it was asked for")

// An agentConn is one connection to an agent.
type agentConn struct {
	net    *guardedConn
	client *http2.ClientConn
	done   chan struct{} // closed when the connection is lost
	once   sync.Once
}

func (a *agentConn) markLost() { a.once.Do(func() { close(a.done) }) }

func (a *agentConn) lost() bool {
	select {
	case <-a.done:
		return true
	default:
	}
	// An agent that says it is going away while it keeps the connection is lost too.
	if s := a.client.State(); s.Closed || s.Closing {
		a.close()
		return true
	}
	return false
}

func (a *agentConn) close() {
	a.net.Close()
	a.markLost()
}

// call sends one request and decodes its answer of at most limit bytes. An
// error of the service is an *agent.Error; a connection that is lost meanwhile
// is errAgentGone. When ctx ends the agent is told to give up.
func (a *agentConn) call(ctx context.Context, path string, question, answer any, limit int64) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("cannot encode request: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // a lost connection ends the call, whatever the client makes of it
		select {
		case <-a.done:
			cancel(errAgentGone)
		case <-ctx.Done():
		}
	}()
	a.net.begin(limit + callOverhead)
	defer a.net.end()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("cannot make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := a.client.RoundTrip(req)
	if err != nil {
		return a.callError(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		limit = maxErrorAnswer
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	switch {
	case err != nil:
		return a.callError(ctx, err)
	case int64(len(data)) > limit:
		return fmt.Errorf("cannot take the agent's answer: more than %d bytes: %w", limit, berth.ErrUnavailable)
	case res.StatusCode != http.StatusOK:
		return answeredError(data)
	}
	if err := decodeStrict(data, answer); err != nil {
		return fmt.Errorf("cannot take the agent's answer: %v: %w", err, berth.ErrUnavailable)
	}
	return nil
}

// callError is the error of a call that had no answer.
func (a *agentConn) callError(ctx context.Context, err error) error {
	if a.lost() {
		return errAgentGone
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("cannot call agent: %v: %w", err, berth.ErrUnavailable)
}

// answeredError is the error that an agent answered. Only its known codes are
// taken over, and a bounded, printable text.
func answeredError(data []byte) error {
	var e agent.Error
	if err := decodeStrict(data, &e); err != nil {
		return fmt.Errorf("cannot take the agent's error: %v: %w", err, berth.ErrUnavailable)
	}
	switch e.Code {
	case agent.CodeInvalid, agent.CodeNotFound, agent.CodeExists, agent.CodePermission, agent.CodeTooLarge, agent.CodeFull:
	default:
		e.Code = agent.CodeInternal
	}
	if len(e.Message) > agent.MaxMessage {
		e.Message = e.Message[:agent.MaxMessage]
	}
	e.Message = strings.ToValidUTF8(e.Message, "\uFFFD")
	return &e
}

// decodeStrict decodes one JSON value without unknown fields and nothing after it.
func decodeStrict(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more follows after the JSON value")
	}
	return nil
}

// guardedConn bounds what is read from an agent: what was asked for, and a
// little more. It reports the first failed read or the close.
type guardedConn struct {
	net.Conn
	lost func()

	mu        sync.Mutex // protects what follows
	calls     int
	allowance int64
	last      time.Time // when the allowance grew last
}

// begin allows n more bytes, for the answer of a call.
func (g *guardedConn) begin(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	g.allowance += n
}

// end takes back what was not used, once no call is left.
func (g *guardedConn) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.calls--; g.calls == 0 {
		g.allowance = min(g.allowance, maxIdleBytes)
	}
}

func (g *guardedConn) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if err == nil && !g.spend(int64(n)) {
		err = errFlood
	}
	if err != nil {
		g.Conn.Close()
		g.lost()
	}
	return n, err
}

func (g *guardedConn) spend(n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if whole := int64(time.Since(g.last).Seconds()); whole > 0 {
		if g.allowance < maxIdleBytes {
			g.allowance = min(maxIdleBytes, g.allowance+whole*idleBytesASec)
		}
		g.last = g.last.Add(time.Duration(whole) * time.Second)
	}
	g.allowance -= n
	return g.allowance >= 0
}

func (g *guardedConn) Close() error {
	defer g.lost()
	return g.Conn.Close()
}
