package sandbox_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/sandbox"
	"berth/sandbox/agent"
)

// TestAgentFloodsEntries: the smallest entries of a listing are many times
// larger in memory than on the wire.
func TestAgentFloodsEntries(t *testing.T) {
	w := newWorld(t)
	flood := `{"entries":[` + strings.Repeat("{},", 1_700_000) + `{}]}`
	w.provider.Serve = liar(http2Liar(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path == agent.PathList {
			io.WriteString(rw, flood)
			return
		}
		io.WriteString(rw, `{}`)
	}))
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	bash(t, m, v, "true")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := call(t.Context(), m, v, "list_files", args{"limit": agent.MaxEntries})
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "more than the 10000 entries") {
		t.Errorf("list_files: %v, want an error about too many entries", err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 100<<20 {
		t.Errorf("the answer of %d bytes took %d MiB of memory", len(flood), grown>>20)
	}
}

// TestReadManyEscapes: of a file of escape characters JSON would make one six
// times as large.
func TestReadManyEscapes(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	bash(t, m, v, `head -c 1048576 /dev/zero | tr '\0' '\033' > esc; printf '\033[31mred\033[0m' > red`)
	a, err := call(t.Context(), m, v, "read_file", args{"path": "esc"})
	if err != nil || a.Base64 == nil || a.Content != nil {
		t.Errorf("read of a file of escapes: %v, as base64 %t", err, a.Base64 != nil)
	}
	a, err = call(t.Context(), m, v, "read_file", args{"path": "red"})
	if err != nil || a.Content == nil || *a.Content != "\x1b[31mred\x1b[0m" {
		t.Errorf("read of coloured text: %v, as text %t", err, a.Content != nil)
	}
}

// TestEndedCallStartsNothing: a call whose access was revoked before it came to
// the machine must not start it after the revocation has stopped it.
func TestEndedCallStartsNothing(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	revoked := errors.New("revoked")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(revoked)
	for range 20 {
		v := memberView("ann", "c1")
		if _, err := call(ctx, m, v, "bash", args{"command": "true"}); !errors.Is(err, revoked) {
			t.Errorf("call: %v, want %v", err, revoked)
		}
		if err := m.Stop(t.Context(), v); err != nil { // waits for a start, if there is one
			t.Fatal(err)
		}
		if s, _ := state(t, m, v); s != sandbox.Waiting {
			t.Fatalf("the machine is %s, want %s", s, sandbox.Waiting)
		}
	}
}

// TestAgentThatHangsUp is not given a new socket as fast as it can dial.
func TestAgentThatHangsUp(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	var dials atomic.Int64
	w.provider.Serve = liar(func(c net.Conn) {
		if n, _ := c.Read(make([]byte, 1)); n > 0 { // the gateway spoke
			dials.Add(1)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	call(ctx, m, memberView("ann", "c1"), "bash", args{"command": "true"})
	<-ctx.Done()
	if n := dials.Load(); n > 30 {
		t.Errorf("the agent was let in %d times within a second", n)
	}
}
