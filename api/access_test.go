package api

import (
	"strings"
	"testing"
	"time"
)

func TestTokens(t *testing.T) {
	g := newGateway(t, nil)
	for _, token := range []string{g.operator, g.admin, g.ann, g.key} {
		g.do(token, "GET", "/v1/me", "").ok(200, nil)
		for _, wrong := range []string{token + "x", token[:len(token)-1], token[:len(token)-2] + "zz", strings.ToUpper(token)} {
			g.do(wrong, "GET", "/v1/me", "").refused(401, "unauthorized")
		}
	}
	g.do("", "GET", "/v1/me", "").refused(401, "unauthorized", "Bearer")
	g.do("", "GET", "/v1/me", "", "Authorization", "Basic abc").refused(401, "unauthorized", "Bearer")
	g.do(NewMemberToken(), "GET", "/v1/me", "").refused(401, "unauthorized", "not known")
	if a := g.do("", "GET", "/v1/me", ""); a.header.Get("WWW-Authenticate") == "" {
		t.Error("401 without WWW-Authenticate")
	}
	for key := range g.records.recs {
		for _, token := range []string{g.operator, g.admin, g.ann, g.key} {
			if strings.Contains(key+string(g.records.recs[key].Value), token) {
				t.Errorf("record %s holds a token", key)
			}
		}
	}
}

// TestAccess tries every route with every kind of principal that it is not for.
func TestAccess(t *testing.T) {
	g := newGateway(t, nil)
	tokens := map[string]string{"operator": g.operator, "admin": g.admin, "member": g.ann, "key": g.key}
	serves := map[string]string{
		"operator": "operator", "admin": "admin", "member": "member", "owner": "member key",
		"staff": "operator admin", "any": "operator admin member key",
	}
	for _, r := range g.server.routes() {
		if r.access == "public" {
			continue
		}
		path := strings.NewReplacer(":ws", "w", ":user", "u", ":id", "i", ":chat", "c", ":tool", "bash", "*", "x").Replace(r.path)
		if a := g.do("", r.method, path, ""); a.status != 401 {
			t.Errorf("%s %s without a token: status %d, want 401", r.method, path, a.status)
		}
		for kind, token := range tokens {
			if strings.Contains(serves[r.access], kind) {
				continue
			}
			if a := g.do(token, r.method, path, ""); a.status != 403 {
				t.Errorf("%s %s as %s: status %d, want 403", r.method, path, kind, a.status)
			}
		}
	}
}

func TestWorkspaces(t *testing.T) {
	g := newGateway(t, nil)
	var w struct {
		Title string
		Token string `json:"admin_token"`
	}
	g.do(g.operator, "PUT", "/v1/workspaces/other", `{"title":"Other"}`).ok(200, &w)
	first := w.Token
	g.do(first, "PUT", "/v1/members/eve", "{}").ok(200, nil)
	w.Token = ""
	if g.do(g.operator, "PUT", "/v1/workspaces/other", `{}`).ok(200, &w); w.Token != "" || w.Title != "Other" {
		t.Errorf("repeated: %+v, want the title and no token", w)
	}
	g.do(g.operator, "PUT", "/v1/workspaces/other", `{"rotate":true}`).ok(200, &w)
	g.do(first, "GET", "/v1/members", "").refused(401, "unauthorized", "revoked")
	g.do(w.Token, "GET", "/v1/members", "").ok(200, nil)
	var acme struct{ Members []struct{ User string } }
	if g.do(g.admin, "GET", "/v1/members", "").ok(200, &acme); len(acme.Members) != 1 || acme.Members[0].User != "ann" {
		t.Errorf("the members of acme are %v, want ann alone", acme.Members)
	}
}

// TestOtherWorkspace has members with the same names in two workspaces.
func TestOtherWorkspace(t *testing.T) {
	g := newGateway(t, nil)
	var w struct {
		Token string `json:"admin_token"`
	}
	g.do(g.operator, "PUT", "/v1/workspaces/other", `{}`).ok(200, &w)
	var m struct{ Token string }
	g.do(w.Token, "PUT", "/v1/members/ann", "{}").ok(200, &m)
	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	g.write(annDisk, "f", "of acme")
	g.do(m.Token, "GET", "/v1/chats/c", "").refused(404, "not_found", "c")
	g.do(m.Token, "GET", "/v1/files/me/f", "").refused(404, "not_found", "f")
	g.do(m.Token, "GET", "/v1/files/chats/c/", "").refused(404, "not_found")
	g.do(m.Token, "GET", "/v1/chats/c/events", "").refused(404, "not_found")
	g.do(m.Token, "GET", "/v1/diff?path=f&tree=acme/members/ann", "").refused(404, "not_found")
	g.do(m.Token, "POST", "/v1/chats/c/tools/bash", "{}").refused(404, "not_found")
}

func TestMembers(t *testing.T) {
	g := newGateway(t, nil)
	bob := g.member("bob")
	g.do(bob, "PUT", "/v1/files/me/f", "kept").ok(201, nil)
	g.do(bob, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	g.do(bob, "POST", "/v1/chats/c/tools/bash", "{}").ok(200, nil)
	if token := g.member("bob"); token != "" {
		t.Error("a repeated PUT answered a token")
	}
	stream := g.stream(bob, "/v1/events")
	g.do(g.admin, "DELETE", "/v1/members/bob", "").ok(204, nil)
	stream.ends()
	g.do(bob, "GET", "/v1/me", "").refused(401, "unauthorized", "revoked")
	var chat chatRecord
	for key, rec := range g.records.recs {
		if strings.HasPrefix(key, "chats/acme/members/bob/") {
			chat, _ = decodeRecord[chatRecord](rec)
		}
	}
	if m, _ := g.machines.Machine(t.Context(), chat.Machine); m.State != "sleeping" {
		t.Errorf("the machine of a removed member is %s, want sleeping", m.State)
	}
	g.do(g.admin, "DELETE", "/v1/members/bob", "").ok(204, nil)
	g.do(g.admin, "DELETE", "/v1/members/nobody", "").refused(404, "not_found", "nobody")

	g.now = g.now.Add(time.Minute)
	back := g.member("bob")
	if got := g.do(back, "GET", "/v1/files/me/f", "").ok(200, nil).body; got != "kept" {
		t.Errorf("the file of a member that came back: %q", got)
	}
	g.do(bob, "GET", "/v1/me", "").refused(401, "unauthorized", "revoked")
}

func TestKeys(t *testing.T) {
	g := newGateway(t, nil)
	var made keyAnswer
	g.do(g.admin, "POST", "/v1/keys", `{"label":"ci"}`).ok(201, &made)
	if k, ok := tokenKind(made.Key); k != kindKey || !ok || len(made.Key) != 44 {
		t.Errorf("the key %q has not the form of one", made.Key)
	}
	g.do(made.Key, "PUT", "/v1/chats/x", `{"end_user":"u"}`).ok(200, nil)
	g.do(made.Key, "POST", "/v1/chats/x/tools/bash", "{}").ok(200, nil)
	list := g.do(g.admin, "GET", "/v1/keys", "").ok(200, nil).body
	if strings.Contains(list, made.Key) || !strings.Contains(list, `"label":"ci"`) {
		t.Errorf("the list of keys: %s", list)
	}
	var running = func() int { n, _ := g.machines.Counts(); return n }
	if running() != 1 {
		t.Fatalf("%d machines run, want 1", running())
	}
	all, one := g.stream(made.Key, "/v1/events"), g.stream(made.Key, "/v1/chats/x/events")
	other := g.stream(g.key, "/v1/events")
	g.do(g.admin, "DELETE", "/v1/keys/"+string(made.ID), "").ok(204, nil)
	all.ends()
	one.ends()
	g.do(made.Key, "GET", "/v1/chats/x", "").refused(401, "unauthorized", "revoked")
	if running() != 0 {
		t.Error("the machine of a revoked key still runs")
	}
	g.do(g.key, "PUT", "/v1/chats/y", `{"end_user":"u"}`).ok(200, nil)
	g.do(g.key, "POST", "/v1/chats/y/tools/bash", "{}").ok(200, nil)
	if e := other.next(); e.name != "machine" {
		t.Errorf("the stream of another key: got %+v, want its machine", e)
	}
	g.do(g.admin, "DELETE", "/v1/keys/none", "").refused(404, "not_found", "none")
}

// TestRevocationReachesCalls cuts a tool call that runs.
func TestRevocationReachesCalls(t *testing.T) {
	g := newGateway(t, nil)
	entered := make(chan struct{})
	g.machines.run = waitForCut(entered)
	g.do(g.key, "PUT", "/v1/chats/x", `{"end_user":"u"}`).ok(200, nil)
	done := make(chan answer)
	go func() { done <- g.do(g.key, "POST", "/v1/chats/x/tools/bash", "{}") }()
	<-entered
	g.do(g.admin, "DELETE", "/v1/keys/k1", "").ok(204, nil)
	(<-done).refused(401, "unauthorized", "revoked")
}

func TestBegin(t *testing.T) {
	g := newGateway(t, nil)
	again := Beginning{Workspace: "acme", User: "ann", KeyID: "k1", OperatorToken: g.operator, AdminToken: g.admin, MemberToken: g.ann, APIKey: g.key}
	g.do(g.admin, "DELETE", "/v1/keys/k1", "").ok(204, nil)
	if err := Begin(t.Context(), g.records, again, g.now); err != nil {
		t.Fatal(err)
	}
	g.do(g.key, "GET", "/v1/me", "").refused(401, "unauthorized", "revoked")
}
