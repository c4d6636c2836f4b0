package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"berth"
)

func TestChats(t *testing.T) {
	g := newGateway(t, nil)
	var c chatAnswer
	g.do(g.ann, "PUT", "/v1/chats/c1", `{"title":"First","experts":["critic"],"tz":"Europe/Berlin"}`).ok(200, &c)
	machine := c.Machine.ID
	if len(machine) != 21 || machine[0] != 'i' || c.Machine.State != "waiting" || c.Title != "First" ||
		fmt.Sprint(c.Experts) != "[profy critic]" || c.TZ != "Europe/Berlin" {
		t.Errorf("got %+v", c)
	}
	if len(g.machines.machines) != 0 {
		t.Error("making a chat started a machine")
	}
	c = chatAnswer{}
	g.do(g.ann, "PUT", "/v1/chats/c1", "").ok(200, &c)
	if c.Machine.ID != machine || c.Title != "First" || len(c.Experts) != 2 {
		t.Errorf("repeated: got %+v, want no change", c)
	}
	g.do(g.ann, "PUT", "/v1/chats/c1", `{"title":"Second","experts":["critic","writer"]}`).ok(200, &c)
	if c.Machine.ID != machine || c.Title != "Second" || len(c.Experts) != 3 {
		t.Errorf("changed: got %+v", c)
	}
	g.do(g.ann, "GET", "/v1/chats/none", "").refused(404, "not_found", "none")
}

func TestChatBodies(t *testing.T) {
	g := newGateway(t, nil)
	many := `"e0"`
	for i := range maxExperts {
		many += fmt.Sprintf(`,"e%d"`, i+1)
	}
	for body, word := range map[string]string{
		"{":             "body",
		"[]":            "object",
		"null":          "object",
		`"x"`:           "object",
		`{} {}`:         "more than one",
		`{"titel":"x"}`: "titel",
		`{"title":1}`:   "title",
		`{"title":"` + strings.Repeat("é", 201) + `"}`:     "title",
		`{"tz":"Mars/Olympus"}`:                            "tz",
		`{"tz":"../../etc/passwd"}`:                        "tz",
		`{"tz":""}`:                                        "tz",
		`{"tz":"Local"}`:                                   "tz",
		`{"experts":["shared"]}`:                           "shared",
		`{"experts":["a/b"]}`:                              "expert",
		`{"experts":[` + many + `]}`:                       "expert",
		`{"end_user":"u"}`:                                 "end user",
		`{"experts":["` + strings.Repeat("x", 129) + `"]}`: "129",
	} {
		g.do(g.ann, "PUT", "/v1/chats/c", body).refused(400, "invalid", word)
	}
	g.do(g.key, "PUT", "/v1/chats/c", "{}").refused(400, "invalid", "end_user")
	g.do(g.key, "PUT", "/v1/chats/c", `{"end_user":".hidden"}`).refused(400, "invalid", "end user")
	g.do(g.ann, "PUT", "/v1/chats/c", `{"title":"`+strings.Repeat("x", maxBody)+`"}`).refused(413, "too_large")
	g.do(g.ann, "GET", "/v1/chats/c", "").refused(404, "not_found")
}

func TestBadIDs(t *testing.T) {
	g := newGateway(t, nil)
	for _, id := range []string{"a/b", "..", ".", ".a", "a\x00b", "\x00", strings.Repeat("a", 129), "🙂", "a b", "\xff", "a%2Fb"} {
		escaped := strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
		g.do(g.ann, "PUT", "/v1/chats/"+escaped, "{}").refused(400, "invalid", "chat id")
		g.do(g.ann, "GET", "/v1/chats/"+escaped+"/events", "").refused(400, "invalid", "chat id")
		g.do(g.ann, "POST", "/v1/chats/"+escaped+"/tools/bash", "{}").refused(400, "invalid", "chat id")
		g.do(g.ann, "GET", "/v1/files/chats/"+escaped+"/f", "").refused(400, "invalid", "chat id")
		g.do(g.operator, "PUT", "/v1/workspaces/"+escaped, "{}").refused(400, "invalid", "workspace id")
		g.do(g.admin, "PUT", "/v1/members/"+escaped, "{}").refused(400, "invalid", "user id")
		g.do(g.admin, "DELETE", "/v1/keys/"+escaped, "").refused(400, "invalid", "key id")
	}
}

func TestChatOwnership(t *testing.T) {
	g := newGateway(t, nil)
	bob := g.member("bob")
	var other keyAnswer
	g.do(g.admin, "POST", "/v1/keys", `{}`).ok(201, &other)
	g.do(g.key, "PUT", "/v1/chats/x", `{"end_user":"u1"}`).ok(200, nil)
	g.do(g.key, "PUT", "/v1/chats/x", `{"end_user":"u1"}`).ok(200, nil)
	g.do(g.key, "PUT", "/v1/chats/x", `{}`).ok(200, nil)
	g.do(g.key, "PUT", "/v1/chats/x", `{"end_user":"u2"}`).refused(409, "conflict", "x", "u2")
	for _, r := range []struct{ method, path, body string }{
		{"PUT", "", `{"end_user":"u1"}`}, {"GET", "", ""}, {"DELETE", "", ""}, {"POST", "/tools/bash", "{}"},
		{"POST", "/machine/stop", ""}, {"POST", "/machine/wake", ""}, {"DELETE", "/machine", ""}, {"GET", "/events", ""},
	} {
		g.do(other.Key, r.method, "/v1/chats/x"+r.path, r.body).refused(404, "not_found", "x")
	}
	// A member's chats are its own: the name is free for others.
	var ann, hers chatAnswer
	g.do(g.ann, "PUT", "/v1/chats/x", `{}`).ok(200, &ann)
	g.do(bob, "PUT", "/v1/chats/x", `{}`).ok(200, &hers)
	if ann.Machine.ID == hers.Machine.ID {
		t.Error("two members' chats have one machine")
	}
	var list struct{ Chats []chatAnswer }
	if g.do(other.Key, "GET", "/v1/chats", "").ok(200, &list); len(list.Chats) != 0 {
		t.Errorf("a key lists another key's chats: %+v", list)
	}
}

func TestListChats(t *testing.T) {
	g := newGateway(t, nil)
	for i := range 5 {
		g.do(g.ann, "PUT", fmt.Sprint("/v1/chats/c", i), "{}").ok(200, nil)
	}
	var got []string
	for after := ""; ; {
		var page struct {
			Chats []chatAnswer
			Next  string
		}
		g.do(g.ann, "GET", "/v1/chats?limit=2&after="+after, "").ok(200, &page)
		for _, c := range page.Chats {
			got = append(got, string(c.ID))
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if fmt.Sprint(got) != "[c0 c1 c2 c3 c4]" {
		t.Errorf("got %v", got)
	}
	g.do(g.ann, "GET", "/v1/chats?limit=0", "").refused(400, "invalid", "limit")
}

// TestChatRace makes one chat from many sides at once: it has one machine.
func TestChatRace(t *testing.T) {
	g := newGateway(t, nil)
	var wg sync.WaitGroup
	ids := make([]berth.ID, 10)
	for i := range ids {
		wg.Go(func() {
			var c chatAnswer
			a := g.do(g.ann, "PUT", "/v1/chats/c", fmt.Sprintf(`{"experts":["e%d"]}`, i))
			if json.Unmarshal([]byte(a.body), &c) != nil || a.status != 200 {
				t.Errorf("status %d: %s", a.status, a.body)
			}
			ids[i] = c.Machine.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("the chat has the machines %v", ids)
		}
	}
	var c chatAnswer
	if g.do(g.ann, "GET", "/v1/chats/c", "").ok(200, &c); len(c.Experts) != 11 {
		t.Errorf("the chat has the experts %v, want profy and 10 more", c.Experts)
	}
}

func TestTools(t *testing.T) {
	g := newGateway(t, nil)
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	const bash = "/v1/chats/c/tools/bash"
	var r struct {
		Tool, Expert string
		Args         map[string]any
		Experts      []string
	}
	g.do(g.ann, "POST", bash, `{"command":"true"}`).ok(200, &r)
	if r.Tool != "bash" || r.Expert != "profy" || fmt.Sprint(r.Args) != "map[command:true]" {
		t.Errorf("got %+v", r)
	}
	g.do(g.ann, "POST", bash, `{"expert":"critic","command":"true"}`).ok(200, &r)
	if r.Expert != "critic" || fmt.Sprint(r.Experts) != "[profy critic]" || len(r.Args) != 1 {
		t.Errorf("got %+v", r)
	}
	g.do(g.ann, "POST", "/v1/chats/c/tools/nonsense", "{}").refused(404, "not_found", "nonsense", "bash", "write_file")
	g.do(g.ann, "POST", "/v1/chats/c/tools/a%2Fb", "{}").refused(404, "not_found", "a/b")
	g.do(g.ann, "POST", "/v1/chats/none/tools/bash", "{}").refused(404, "not_found", "none")
	for _, body := range []string{"{", "[]", "null", `"x"`, "1", `{"a":1}{"b":2}`, `{"expert":1}`, `{"expert":"shared"}`, `{"expert":"a/b"}`, "\xff"} {
		g.do(g.ann, "POST", bash, body).refused(400, "invalid")
	}
	large := `{"x":"` + strings.Repeat("y", maxArgs) + `"}`
	g.do(g.ann, "POST", bash, large).refused(413, "too_large")
	g.do(g.ann, "POST", "/v1/chats/c/tools/write_file", large).ok(200, nil)
	g.do(g.ann, "POST", "/v1/chats/c/tools/write_file", `{"x":"`+strings.Repeat("y", maxWriteArgs)+`"}`).refused(413, "too_large")
}

func TestToolErrors(t *testing.T) {
	g := newGateway(t, nil)
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	for _, tt := range []struct {
		err    error
		status int
		code   string
	}{
		{fmt.Errorf("cannot start: %w", berth.ErrUnavailable), 503, "unavailable"},
		{fmt.Errorf("cannot start: %w", ErrLimit), 429, "rate_limited"},
		{fmt.Errorf("surprise"), 500, "internal"},
	} {
		g.machines.run = func(context.Context, berth.View, Call) (json.RawMessage, error) { return nil, tt.err }
		g.do(g.ann, "POST", "/v1/chats/c/tools/bash", "{}").refused(tt.status, tt.code)
	}
	g.machines.run = func(context.Context, berth.View, Call) (json.RawMessage, error) { panic("oops") }
	a := g.do(g.ann, "POST", "/v1/chats/c/tools/bash", "{}")
	a.refused(500, "internal")
	if strings.Contains(a.body, "oops") {
		t.Error("an internal error tells its cause to the caller")
	}
	g.do(g.ann, "GET", "/v1/chats/c", "").ok(200, nil)
}

func TestNoSandboxes(t *testing.T) {
	g := newGateway(t, func(o *Options) { o.Machines = nil })
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	for _, r := range [][2]string{{"POST", "/tools/bash"}, {"POST", "/machine/stop"}, {"POST", "/machine/wake"}, {"DELETE", "/machine"}} {
		a := g.do(g.ann, r[0], "/v1/chats/c"+r[1], "{}")
		a.refused(503, "unavailable", "off")
		if a.header.Get("Retry-After") == "" {
			t.Error("503 without Retry-After")
		}
	}
	g.do(g.ann, "PUT", "/v1/files/me/f", "x").ok(201, nil)
	g.do(g.ann, "DELETE", "/v1/chats/c", "").ok(204, nil)
}

func TestMachineLife(t *testing.T) {
	g := newGateway(t, nil)
	var c chatAnswer
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, &c)
	first := c.Machine.ID
	do := func(method, path, want string) {
		t.Helper()
		if g.do(g.ann, method, "/v1/chats/c"+path, "").ok(200, &c); c.Machine.State != want {
			t.Errorf("%s %s: the machine is %s, want %s", method, path, c.Machine.State, want)
		}
	}
	do("POST", "/machine/stop", "waiting")
	do("POST", "/machine/wake", "running")
	do("POST", "/machine/stop", "sleeping")
	do("POST", "/machine/wake", "running")
	if c.Machine.ID != first {
		t.Error("the machine's id changed over sleep")
	}
	do("DELETE", "/machine", "terminated")
	do("GET", "", "terminated")
	do("DELETE", "/machine", "terminated")
	do("POST", "/machine/wake", "running")
	if c.Machine.ID == first {
		t.Error("a destroyed machine's id was used again")
	}
	var status statusAnswer
	g.do(g.admin, "GET", "/v1/status", "").ok(200, &status)
	if len(status.Workspace) != 1 || status.Workspace[0].Machine.ID != c.Machine.ID || status.Files != nil {
		t.Errorf("the admin's status: %+v", status)
	}
	g.do(g.operator, "GET", "/v1/status", "").ok(200, &status)
	if status.Machines.Running != 1 || string(status.Files) != `{"dirty_files":0}` {
		t.Errorf("the operator's status: %+v", status)
	}
}

func TestDeleteChat(t *testing.T) {
	g := newGateway(t, nil)
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	g.do(g.ann, "PUT", "/v1/files/chats/c/f", "stays").ok(201, nil)
	g.do(g.ann, "POST", "/v1/chats/c/tools/bash", "{}").ok(200, nil)
	g.do(g.ann, "DELETE", "/v1/chats/c", "").ok(204, nil)
	g.do(g.ann, "GET", "/v1/chats/c", "").refused(404, "not_found")
	g.do(g.ann, "DELETE", "/v1/chats/c", "").refused(404, "not_found")
	if got := g.do(g.ann, "GET", "/v1/files/me/profy/c/f", "").ok(200, nil).body; got != "stays" {
		t.Errorf("a file of the member's disk: %q", got)
	}
	for _, m := range g.machines.machines {
		if m.State != "terminated" {
			t.Errorf("the machine is %s, want terminated", m.State)
		}
	}
	g.do(g.key, "PUT", "/v1/chats/k", `{"end_user":"u"}`).ok(200, nil)
	g.do(g.key, "PUT", "/v1/files/chats/k/f", "goes").ok(201, nil)
	g.do(g.key, "DELETE", "/v1/chats/k", "").ok(204, nil)
	g.do(g.key, "PUT", "/v1/chats/k", `{"end_user":"u"}`).ok(200, nil)
	g.do(g.key, "GET", "/v1/files/chats/k/f", "").refused(404, "not_found", "f")
}

// TestStoreAway changes nothing while the store is away, and reads go on.
func TestStoreAway(t *testing.T) {
	g := newGateway(t, nil)
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	g.records.away = true
	g.do(g.ann, "PUT", "/v1/chats/d", "{}").refused(503, "unavailable")
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	g.do(g.ann, "GET", "/v1/chats/c", "").ok(200, nil)
}
