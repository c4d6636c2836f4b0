package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth"
)

// dial sends the text of a request on a connection of its own, which it returns.
func (g *gateway) dial(text string) net.Conn {
	g.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(c, text)
	return c
}

// TestBodyThatNeverComes is answered without it, with or without a token.
func TestBodyThatNeverComes(t *testing.T) {
	g := newGateway(t, func(o *Options) { o.TransferTime = 100 * time.Millisecond })
	for _, tt := range []struct {
		token  string
		status int
	}{{"none", 401}, {g.admin, 400}} {
		c := g.dial("POST /v1/keys HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nAuthorization: Bearer " + tt.token + "\r\n\r\n{")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("with token %.12s: %v", tt.token, err)
			continue
		}
		res.Body.Close()
		if res.StatusCode != tt.status {
			t.Errorf("with token %.12s: status %d, want %d", tt.token, res.StatusCode, tt.status)
		}
	}
}

// TestAnswerThatNobodyTakes is not kept: the request ends.
func TestAnswerThatNobodyTakes(t *testing.T) {
	g := newGateway(t, func(o *Options) { o.TransferTime = 100 * time.Millisecond })
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	large := json.RawMessage(`{"stdout":"` + strings.Repeat("x", 32<<20) + `"}`)
	g.machines.run = func(context.Context, berth.View, Call) (json.RawMessage, error) { return large, nil }
	g.dial("POST /v1/chats/c/tools/bash HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nAuthorization: Bearer " + g.ann + "\r\n\r\n{}")
	begun := false
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		g.server.cuts.mu.Lock()
		n := len(g.server.cuts.all)
		g.server.cuts.mu.Unlock()
		if begun = begun || n > 0; begun && n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the request is still held")
		}
	}
}

// TestCallLongerThanItsBody: the time for the body is not one for the call.
func TestCallLongerThanItsBody(t *testing.T) {
	g := newGateway(t, func(o *Options) { o.TransferTime = 50 * time.Millisecond })
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	g.machines.run = func(ctx context.Context, _ berth.View, _ Call) (json.RawMessage, error) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
			return json.RawMessage(`{}`), nil
		}
	}
	for _, tool := range []string{"bash", "write_file"} {
		g.do(g.ann, "POST", "/v1/chats/c/tools/"+tool, `{"a":1}`).ok(200, nil)
	}
}

// TestCallsWithFiles run a few at a time, so that the files fit in memory.
func TestCallsWithFiles(t *testing.T) {
	g := newGateway(t, nil)
	bob := g.member("bob")
	var now, most atomic.Int64
	enough, release := make(chan struct{}, 100), make(chan struct{})
	g.machines.run = func(ctx context.Context, v berth.View, c Call) (json.RawMessage, error) {
		if c.Tool == "write_file" && v.User == "ann" {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			enough <- struct{}{}
			<-release
		}
		return json.RawMessage(`{}`), nil
	}
	for _, token := range []string{g.ann, bob} {
		g.do(token, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	}
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() { g.do(g.ann, "POST", "/v1/chats/c/tools/write_file", "{}").ok(200, nil) })
	}
	for range maxBulkEach {
		<-enough
	}
	g.do(bob, "POST", "/v1/chats/c/tools/write_file", "{}").ok(200, nil) // does not wait for ann
	g.do(g.ann, "POST", "/v1/chats/c/tools/bash", "{}").ok(200, nil)
	close(release)
	calls.Wait()
	if n := most.Load(); n != maxBulkEach {
		t.Errorf("%d calls of one member ran at once, want %d", n, maxBulkEach)
	}
	if n := len(g.server.bulk.byName) + len(g.server.bulk.all); n != 0 {
		t.Errorf("%d turns were not given back", n)
	}
}

// TestRequestsLimit lets nobody have more than so many requests under way.
func TestRequestsLimit(t *testing.T) {
	g := newGateway(t, nil)
	bob := g.member("bob")
	begun, end := make(chan struct{}, maxRequests), make(chan struct{})
	g.machines.run = func(context.Context, berth.View, Call) (json.RawMessage, error) {
		begun <- struct{}{}
		<-end
		return json.RawMessage(`{}`), nil
	}
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	var calls sync.WaitGroup
	for range maxRequests {
		calls.Go(func() { g.do(g.ann, "POST", "/v1/chats/c/tools/bash", "{}").ok(200, nil) })
	}
	for range maxRequests {
		<-begun
	}
	g.do(g.ann, "GET", "/v1/me", "").refused(429, "rate_limited", fmt.Sprint(maxRequests))
	g.do(bob, "GET", "/v1/me", "").ok(200, nil)
	close(end)
	calls.Wait()
	g.do(g.ann, "GET", "/v1/me", "").ok(200, nil)
}
