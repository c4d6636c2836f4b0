package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth"
	"berth/preview"
)

// waitForCut is a tool that runs until its call is cut.
func waitForCut(entered chan<- struct{}) func(context.Context, berth.View, Call) (json.RawMessage, error) {
	return func(ctx context.Context, _ berth.View, _ Call) (json.RawMessage, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

// A stream is an open event stream.
type stream struct {
	t     *testing.T
	lines chan string // closed at the stream's end
	close func()
}

type sse struct{ id, name, data string }

func (g *gateway) stream(token, path string, headers ...string) *stream {
	g.t.Helper()
	res, err := http.DefaultTransport.RoundTrip(g.request(token, "GET", path, "", headers...))
	if err != nil {
		g.t.Fatal(err)
	}
	if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		g.t.Fatalf("GET %s: status %d, type %s", path, res.StatusCode, res.Header.Get("Content-Type"))
	}
	s := &stream{t: g.t, lines: make(chan string, 1000), close: func() { res.Body.Close() }}
	g.t.Cleanup(s.close)
	go func() {
		defer close(s.lines)
		for in := bufio.NewScanner(res.Body); in.Scan(); {
			s.lines <- in.Text()
		}
	}()
	if first := s.line(); first != "retry: 1000" {
		g.t.Fatalf("the stream begins with %q", first)
	}
	return s
}

func (s *stream) line() string {
	s.t.Helper()
	select {
	case line, ok := <-s.lines:
		if !ok {
			s.t.Fatal("the stream has ended")
		}
		return line
	case <-time.After(10 * time.Second):
		s.t.Fatal("the stream is silent")
	}
	return ""
}

// next returns the next event, leaving comments out.
func (s *stream) next() sse {
	s.t.Helper()
	var e sse
	for {
		name, value, _ := strings.Cut(s.line(), ": ")
		switch {
		case name == "id":
			e.id = value
		case name == "event":
			e.name = value
		case name == "data":
			e.data = value
		case name == "" && value == "" && e.data != "":
			return e
		}
	}
}

// ends waits for the stream's end.
func (s *stream) ends() {
	s.t.Helper()
	for end := time.After(3 * time.Second); ; {
		select {
		case _, ok := <-s.lines:
			if !ok {
				return
			}
		case <-end:
			s.t.Fatal("the stream is still open after 3 s")
		}
	}
}

func (g *gateway) change(tree berth.Tree, path string) {
	g.changes <- []berth.Change{{Time: time.Now(), Tree: tree.String(), Path: path, Op: berth.OpWrite, Kind: berth.KindFile}}
}

func TestEventsOfMember(t *testing.T) {
	g := newGateway(t, nil)
	s := g.stream(g.ann, "/v1/events")
	for _, tree := range []berth.Tree{
		berth.MemberTree("acme", "bob"), berth.MemberTree("other", "ann"), berth.SharedTree("other"),
		berth.SessionTree("acme", "ann", "c"), berth.MachineTree("acme", "i1"),
	} {
		g.change(tree, "not for ann")
	}
	g.machines.set(berth.View{Workspace: "acme", User: "bob", Chat: "c", Machine: "i9"}, "running")
	g.change(annDisk, "mine")
	g.change(shared, "ours")
	for _, want := range []string{`"path":"mine"`, `"path":"ours"`} {
		if e := s.next(); e.name != "fs" || !strings.Contains(e.data, want) {
			t.Errorf("got %+v, want %s", e, want)
		}
	}
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	id := g.do(g.ann, "POST", "/v1/chats/c/tools/bash", "{}").ok(200, nil).header.Get(callHeader)
	var m preview.Machine
	if e := s.next(); e.name != "machine" || json.Unmarshal([]byte(e.data), &m) != nil || m.State != "running" || m.Chat != "c" {
		t.Errorf("got %+v, want the machine's state", e)
	}
	g.change(annDisk, "elsewhere")
	if e := s.next(); !strings.Contains(e.data, `"calls":["`+id+`"]`) || !strings.Contains(e.data, `"chat":"c"`) {
		t.Errorf("got %+v, want the call %s", e, id)
	}
}

func TestEventsOfKey(t *testing.T) {
	g := newGateway(t, nil)
	var other keyAnswer
	g.do(g.admin, "POST", "/v1/keys", `{}`).ok(201, &other)
	g.do(other.Key, "PUT", "/v1/chats/theirs", `{"end_user":"u"}`).ok(200, nil)
	s := g.stream(g.key, "/v1/events")
	g.do(g.key, "PUT", "/v1/chats/mine", `{"end_user":"u"}`).ok(200, nil)
	g.change(annDisk, "no")
	g.change(shared, "no")
	g.change(berth.SessionTree("acme", "u", "theirs"), "no")
	g.change(berth.SessionTree("acme", "u", "unknown"), "no")
	g.change(berth.SessionTree("other", "u", "mine"), "no")
	g.change(berth.SessionTree("acme", "u", "mine"), "yes")
	if e := s.next(); !strings.Contains(e.data, `"path":"yes"`) {
		t.Errorf("got %+v, want only the change of its own chat", e)
	}
	// Deleted and made anew by another key, the chat is the other's.
	g.do(g.key, "DELETE", "/v1/chats/mine", "").ok(204, nil)
	g.do(other.Key, "PUT", "/v1/chats/mine", `{"end_user":"u"}`).ok(200, nil)
	g.change(berth.SessionTree("acme", "u", "mine"), "no more")
	g.do(g.key, "PUT", "/v1/chats/mine2", `{"end_user":"u"}`).ok(200, nil)
	g.change(berth.SessionTree("acme", "u", "mine2"), "last")
	if e := s.next(); !strings.Contains(e.data, `"path":"last"`) {
		t.Errorf("got %+v, want no change of a chat that is another's now", e)
	}
}

func TestEventsOfChat(t *testing.T) {
	g := newGateway(t, nil)
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	s := g.stream(g.ann, "/v1/chats/c/events")
	g.change(annDisk, "profy/other/f")
	g.change(annDisk, "c/profy/f")
	g.change(annDisk, "profy/c/f")
	if e := s.next(); !strings.Contains(e.data, `"path":"profy/c/f"`) {
		t.Errorf("got %+v, want the change in the chat's directory", e)
	}
	g.do(g.key, "PUT", "/v1/chats/c", `{"end_user":"u"}`).ok(200, nil)
	k := g.stream(g.key, "/v1/chats/c/events")
	g.change(annDisk, "profy/c/f")
	g.change(berth.SessionTree("acme", "u", "c"), "g")
	if e := k.next(); !strings.Contains(e.data, `"path":"g"`) {
		t.Errorf("got %+v, want the change of the session root", e)
	}
}

// TestEventsOfChatOfTheSameName: chat ids are each member's own, while all see
// the shared directory.
func TestEventsOfChatOfTheSameName(t *testing.T) {
	g := newGateway(t, nil)
	bob := g.member("bob")
	for _, token := range []string{g.ann, bob} {
		g.do(token, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	}
	g.do(bob, "POST", "/v1/chats/c/tools/bash", "{}").ok(200, nil) // has not ended, as the feed sees it
	anns, bobs, all := g.stream(g.ann, "/v1/chats/c/events"), g.stream(bob, "/v1/chats/c/events"), g.stream(g.ann, "/v1/events")
	g.change(shared, "of-bob")
	if e := bobs.next(); !strings.Contains(e.data, `"path":"of-bob"`) || !strings.Contains(e.data, `"chat":"c"`) {
		t.Errorf("bob's chat: got %+v, want the change with its chat", e)
	}
	if e := all.next(); !strings.Contains(e.data, `"path":"of-bob"`) || strings.Contains(e.data, `"chat"`) {
		t.Errorf("ann: got %+v, want the change without bob's chat", e)
	}
	g.change(annDisk, "profy/c/of-ann")
	if e := anns.next(); !strings.Contains(e.data, `"path":"profy/c/of-ann"`) {
		t.Errorf("ann's chat: got %+v, want nothing of bob's", e)
	}
}

func TestEventsResume(t *testing.T) {
	g := newGateway(t, nil)
	cursor := g.do(g.ann, "GET", "/v1/me", "").ok(200, nil).header.Get(cursorHeader)
	for i := range 3 {
		g.change(annDisk, fmt.Sprint("f", i))
	}
	s := g.stream(g.ann, "/v1/events?since="+cursor)
	first := s.next()
	if !strings.Contains(first.data, `"path":"f0"`) {
		t.Errorf("since the cursor: got %+v, want f0", first)
	}
	again := g.stream(g.ann, "/v1/events?since=nonsense", "Last-Event-ID", first.id)
	if e := again.next(); !strings.Contains(e.data, `"path":"f1"`) {
		t.Errorf("after Last-Event-ID: got %+v, want f1", e)
	}
	if e := g.stream(g.ann, "/v1/events?since=nonsense").next(); e.name != "reset" || !strings.Contains(e.data, `"reason":"gap"`) {
		t.Errorf("since nonsense: got %+v, want a reset", e)
	}
	if e := g.stream(g.ann, "/v1/events?since=longago.5").next(); e.name != "reset" {
		t.Errorf("since another epoch: got %+v, want a reset", e)
	}
}

func TestEventsHeartbeat(t *testing.T) {
	g := newGateway(t, func(o *Options) { o.Heartbeat = 5 * time.Millisecond })
	s := g.stream(g.ann, "/v1/events")
	for s.line() != ": still here" {
	}
	if id := s.line(); !strings.HasPrefix(id, "id: ") {
		t.Errorf("after the comment: %q, want an id", id)
	}
}

func TestEventsLimit(t *testing.T) {
	g := newGateway(t, nil)
	var open []*stream
	for range maxStreams {
		open = append(open, g.stream(g.ann, "/v1/events"))
	}
	a := g.do(g.ann, "GET", "/v1/events", "")
	a.refused(429, "rate_limited", fmt.Sprint(maxStreams))
	if a.header.Get("Retry-After") == "" {
		t.Error("429 without Retry-After")
	}
	g.stream(g.key, "/v1/events")
	for _, s := range open {
		s.close()
	}
	for end := time.Now().Add(10 * time.Second); ; {
		if a := g.do(g.ann, "GET", "/v1/chats", ""); a.status != 200 {
			t.Fatal(a.body)
		}
		g.server.cuts.mu.Lock()
		left := len(g.server.cuts.byName[memberName("acme", "ann")])
		g.server.cuts.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d streams are left after their clients went", left)
		}
	}
}
