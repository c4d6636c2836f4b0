package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"berth"
	"berth/sandbox"
	"berth/sandbox/agent"
)

// liar serves an agent's connections with a function of the test's, one after
// the other, until ctx ends.
func liar(serve func(net.Conn)) func(context.Context, agent.Options) error {
	return func(ctx context.Context, o agent.Options) error {
		for ctx.Err() == nil {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", o.Socket)
			if err != nil {
				time.Sleep(2 * time.Millisecond)
				continue
			}
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			serve(conn)
			stop()
			conn.Close()
		}
		return nil
	}
}

// http2Liar serves every request with a handler.
func http2Liar(h http.HandlerFunc) func(net.Conn) {
	return func(c net.Conn) { (&http2.Server{}).ServeConn(c, &http2.ServeConnOpts{Handler: h}) }
}

// TestLyingAgents lets agents do what no agent should, next to an honest machine
// that must not notice.
func TestLyingAgents(t *testing.T) {
	answerWith := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			io.WriteString(w, text)
		}
	}
	endless := bytes.Repeat([]byte("x"), 1<<20)
	for _, c := range []struct {
		name  string
		serve func(net.Conn)
		says  string
	}{
		{"hangs up", func(net.Conn) {}, "agent"},
		{"speaks no HTTP/2", func(c net.Conn) { io.WriteString(c, strings.Repeat("rubbish", 1000)) }, "agent"},
		{"answers without end", http2Liar(func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(endless); err != nil {
					return
				}
			}
		}), "more than"},
		{"answers with endless headers", http2Liar(func(w http.ResponseWriter, _ *http.Request) {
			for i := range 100 {
				w.Header().Add("X-"+strings.Repeat("a", i+1), strings.Repeat("b", 1000))
			}
		}), "agent"},
		{"answers with rubbish", http2Liar(answerWith("{]")), "cannot take the agent's answer"},
		{"answers with more", http2Liar(answerWith(`{"exit_code":0}{}`)), "cannot take the agent's answer"},
		{"answers with unknown fields", http2Liar(answerWith(`{"uid":0}`)), "cannot take the agent's answer"},
		{"answers with a strange status", http2Liar(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(302) }), "cannot take the agent's error"},
		{"answers with an error of its own", http2Liar(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			json.NewEncoder(w).Encode(agent.Error{Code: "root", Message: strings.Repeat("m", 10000) + "\xff"})
		}), "mmmm"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			m := w.manager(t, func(o *sandbox.Options) { o.AgentTimeout = time.Second })
			honest, lying := memberView("ann", "c1"), memberView("ann", "c2")
			bash(t, m, honest, "true")
			w.provider.Serve = liar(c.serve)
			_, err := call(t.Context(), m, lying, "bash", args{"command": "true"})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("call of the liar: %v, want an error that says %q", err, c.says)
			}
			if err != nil && len(err.Error()) > 2*agent.MaxMessage {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if a := bash(t, m, honest, "echo ok"); a.Stdout != "ok\n" {
				t.Errorf("the honest machine: %+v", a)
			}
		})
	}
}

func TestAgentLiesWithNumbers(t *testing.T) {
	w := newWorld(t)
	w.provider.Serve = liar(http2Liar(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case agent.PathBash:
			io.WriteString(rw, `{"stdout":{"head":"YQ==","total":-5},"stderr":{"total":9000000000000000000},"exit_code":-77,"reason":"root","duration_ms":-1}`)
		case agent.PathRead:
			io.WriteString(rw, `{"content":"YWJj","size":-3}`)
		case agent.PathList:
			io.WriteString(rw, `{"entries":[{"name":"Li4vLi4=","kind":"root","size":-1,"mtime_ns":9223372036854775807}],"truncated":false}`)
		default:
			io.WriteString(rw, `{}`)
		}
	}))
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	a := bash(t, m, v, "true")
	if a.ExitCode != 0 || a.Reason != "signal" || a.StdoutBytes != 1 || a.Stdout != "a" {
		t.Errorf("bash: %+v", a)
	}
	if a, err := call(t.Context(), m, v, "read_file", args{"path": "x", "max_bytes": 2}); err != nil || *a.Content != "ab" || a.Size != 0 {
		t.Errorf("read_file: %+v, %v", a, err)
	}
	if a, err := call(t.Context(), m, v, "list_files", args{}); err != nil || a.Entries[0].Kind != "other" || a.Entries[0].Size != 0 {
		t.Errorf("list_files: %+v, %v", a, err)
	}
}

func TestAgentThatNeverAnswers(t *testing.T) {
	w := newWorld(t)
	given := make(chan struct{})
	w.provider.Serve = liar(http2Liar(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		if r.URL.Path == agent.PathBash {
			close(given)
		}
	}))
	m := w.start(t, nil)
	v := memberView("ann", "c1")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := call(ctx, m, v, "bash", args{"command": "true"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("call: %v, want that the time was up", err)
	}
	<-given // the agent was told
	if err := m.Destroy(t.Context(), v); err != nil {
		t.Errorf("destroy: %v", err)
	}
	closeManager(t, m, true)
}

// TestFloodingAgent sends what nobody asked for: the connection is ended, and
// with it the machine.
func TestFloodingAgent(t *testing.T) {
	w := newWorld(t)
	w.provider.Serve = liar(func(c net.Conn) {
		go io.Copy(io.Discard, c)
		framer := http2.NewFramer(c, nil)
		if framer.WriteSettings() != nil {
			return
		}
		for framer.WritePing(true, [8]byte{}) == nil {
		}
	})
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	if _, err := call(t.Context(), m, v, "bash", args{"command": "true"}); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("call: %v, want unavailable", err)
	}
}

func TestSubscriptionFallsBehind(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	sub := m.Watch()
	v := memberView("ann", "c1")
	w.provider.SetDown(berth.ErrUnavailable)
	for range 600 { // two changes each, more than a subscription may be behind
		m.Wake(t.Context(), v)
	}
	w.provider.SetDown(nil)
	if _, err := sub.Next(t.Context()); !errors.Is(err, sandbox.ErrReset) {
		t.Errorf("subscription that nobody read: %v, want ErrReset", err)
	}
}
