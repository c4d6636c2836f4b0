package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestServeStops ends streams at once and lets a request finish.
func TestServeStops(t *testing.T) {
	g := newGateway(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- g.server.Serve(ctx, l) }()
	g.url = "http://" + l.Addr().String()
	s := g.stream(g.ann, "/v1/events")
	cancel()
	s.ends()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the server does not stop")
	}
}

// TestServeLimits refuses headers without end.
func TestServeLimits(t *testing.T) {
	g := newGateway(t, nil)
	r := g.request(g.ann, "GET", "/v1/me", "")
	for range 100 {
		r.Header.Add("X-Long", strings.Repeat("x", 1000))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.server.Serve(ctx, l) }()
	defer func() { cancel(); <-done }()
	r.URL.Host = l.Addr().String()
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("endless headers: status %d, want 431", res.StatusCode)
	}
}
