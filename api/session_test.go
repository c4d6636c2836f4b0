package api

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// signIn uses a link and returns the cookie.
func (g *gateway) signIn(token string) *http.Cookie {
	g.t.Helper()
	a := g.do("", "GET", "/signin?t="+token, "", "Host", "gw.localhost").ok(303, nil)
	if to := a.header.Get("Location"); to != "/" {
		g.t.Errorf("the link leads to %q, want /", to)
	}
	res := http.Response{Header: a.header}
	if cookies := res.Cookies(); len(cookies) == 1 {
		return cookies[0]
	}
	g.t.Fatalf("the link sets the cookies %v", res.Cookies())
	return nil
}

func (g *gateway) with(c *http.Cookie) []string {
	return []string{"Host", "gw.localhost", "Cookie", c.Name + "=" + c.Value}
}

func TestSignIn(t *testing.T) {
	g := newGateway(t, nil)
	token := MintSignIn(secret, "acme", "ann", g.now)
	g.do("", "HEAD", "/signin?t="+token, "", "Host", "gw.localhost") // a preview of the link must not use it
	if a := g.do("", "GET", "/signin?t="+token, "", "Host", "gw.localhost", "Sec-Purpose", "prefetch"); a.status == 303 {
		t.Error("a prefetch used the link")
	}
	c := g.signIn(token)
	if c.Name != "__Host-berth" || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
		t.Errorf("the cookie is %v", c)
	}
	var me struct{ Kind, Workspace, User string }
	g.do("", "GET", "/v1/me", "", g.with(c)...).ok(200, &me)
	if me.Kind != "member" || me.Workspace != "acme" || me.User != "ann" {
		t.Errorf("me is %+v", me)
	}
	a := g.do("", "GET", "/signin?t="+token, "", "Host", "gw.localhost").ok(401, nil)
	if !strings.Contains(a.body, "used already") || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		t.Errorf("a second use: %s", a.body)
	}
}

func TestSignInRefuses(t *testing.T) {
	g := newGateway(t, nil)
	good := MintSignIn(secret, "acme", "ann", g.now)
	text, mac, _ := strings.Cut(good, ".")
	session := signTicket(secret, forSession, ticket{Workspace: "acme", User: "ann", Role: kindMember, Expires: g.now.Add(time.Hour).Unix(), Nonce: "n"})
	for name, token := range map[string]string{
		"nothing":            "",
		"nonsense":           "nonsense",
		"no signature":       text + ".",
		"another signature":  text + "." + strings.Repeat("A", len(mac)),
		"changed":            strings.Replace(text, text[:4], "eyJ4", 1) + "x." + mac,
		"another secret":     MintSignIn(make([]byte, 32), "acme", "ann", g.now),
		"a session's cookie": session,
		"expired":            MintSignIn(secret, "acme", "ann", g.now.Add(-SignInLinkLife-time.Second)),
		"unknown member":     MintSignIn(secret, "acme", "nobody", g.now),
		"an id that is none": MintSignIn(secret, "acme", "../x", g.now),
		"too long":           good + strings.Repeat("A", maxTicket),
	} {
		a := g.do("", "GET", "/signin?t="+url.QueryEscape(token), "", "Host", "gw.localhost")
		if a.status != 401 || a.header.Get("Set-Cookie") != "" || !strings.Contains(a.body, "cannot be used") {
			t.Errorf("%s: status %d, cookie %q", name, a.status, a.header.Get("Set-Cookie"))
		}
	}
	g.signIn(good)
}

func TestSessionEnds(t *testing.T) {
	g := newGateway(t, nil)
	c := g.signIn(MintSignIn(secret, "acme", "ann", g.now))
	other := g.signIn(MintSignIn(secret, "acme", "ann", g.now))
	own := append(g.with(c), "Origin", "http://gw.localhost")

	stream := g.stream("", "/v1/events", g.with(c)...)
	a := g.do("", "POST", "/v1/signout", "", own...).ok(204, nil)
	if set := a.header.Get("Set-Cookie"); !strings.Contains(set, "Max-Age=0") {
		t.Errorf("signing out sets %q", set)
	}
	stream.ends()
	g.do("", "GET", "/v1/me", "", g.with(c)...).refused(401, "unauthorized", "ended")
	g.do("", "GET", "/v1/me", "", g.with(other)...).ok(200, nil)
	g.do(g.ann, "POST", "/v1/signout", "").refused(400, "invalid", "cookie")

	link := MintSignIn(secret, "acme", "ann", g.now)
	g.do(g.admin, "DELETE", "/v1/members/ann", "").ok(204, nil)
	g.do("", "GET", "/v1/me", "", g.with(other)...).refused(401, "unauthorized", "revoked")
	g.now = g.now.Add(2 * time.Second)
	g.member("ann")
	g.do("", "GET", "/v1/me", "", g.with(other)...).refused(401, "unauthorized", "revoked")
	if a := g.do("", "GET", "/signin?t="+link, "", "Host", "gw.localhost"); a.status != 401 {
		t.Errorf("a link from before the removal: status %d", a.status)
	}
	fresh := g.signIn(MintSignIn(secret, "acme", "ann", g.now))
	g.do("", "GET", "/v1/me", "", g.with(fresh)...).ok(200, nil)
	g.now = g.now.Add(sessionLife)
	g.do("", "GET", "/v1/me", "", g.with(fresh)...).refused(401, "unauthorized", "expired")
	g.signIn(MintSignIn(secret, "acme", "ann", g.now))
	if recs, _ := g.records.List(t.Context(), "signins/"); len(recs) != 1 {
		t.Errorf("%d records of sign-ins are kept, want that of the last", len(recs))
	}
}

func TestOrigin(t *testing.T) {
	g := newGateway(t, nil)
	c := g.signIn(MintSignIn(secret, "acme", "ann", g.now))
	put := func(headers ...string) answer {
		return g.do("", "PUT", "/v1/chats/c", "{}", append(g.with(c), headers...)...)
	}
	put("Origin", "http://gw.localhost").ok(200, nil)
	put("Sec-Fetch-Site", "same-origin").ok(200, nil)
	put().refused(403, "forbidden", "origin")
	put("Sec-Fetch-Site", "same-site").refused(403, "forbidden", "origin")
	put("Origin", "null").refused(403, "forbidden", "origin")
	put("Origin", "http://5173-i00000000000000000000.gw.localhost").refused(403, "forbidden", "origin")
	put("Origin", "http://evil.example").refused(403, "forbidden", "evil.example")
	// A token is no cookie: no browser sends it by itself.
	g.do(g.ann, "PUT", "/v1/chats/c", "{}", "Origin", "http://elsewhere.example").ok(200, nil)
}

func TestSignInLinks(t *testing.T) {
	g := newGateway(t, nil)
	var link struct{ URL string }
	g.do(g.ann, "POST", "/v1/signin-links", "").ok(201, &link)
	u, err := url.Parse(link.URL)
	if err != nil || u.Hostname() != "gw.localhost" || u.Port() == "" {
		t.Fatalf("the link is %q", link.URL)
	}
	g.signIn(u.Query().Get("t"))
}

func TestHosts(t *testing.T) {
	g := newGateway(t, nil)
	for host, want := range map[string]int{
		"gw.localhost": 200, "GW.localhost:8080": 200, "127.0.0.1:80": 200, "localhost": 200, "[::1]:80": 200, "10.1.2.3": 200,
		"evil.example": 421, "localhost.evil.example": 421, "5173-i00000000000000000000.gw.localhost": 404, "": 400,
	} {
		if host == "" {
			continue // the server of net/http refuses it
		}
		if a := g.do(g.ann, "GET", "/v1/me", "", "Host", host); a.status != want {
			t.Errorf("host %q: status %d, want %d", host, a.status, want)
		}
	}
	a := g.do("", "GET", "/some/page?x=1", "", "Host", "localhost:8080").ok(307, nil)
	if to := a.header.Get("Location"); to != "http://gw.localhost:8080/some/page?x=1" {
		t.Errorf("a page on localhost leads to %q", to)
	}
}

func FuzzOpenTicket(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	// Not by MintSignIn, whose nonce differs between the fuzzer's processes.
	good := signTicket(secret, forSignIn, ticket{Workspace: "acme", User: "ann", Role: kindMember, Expires: now.Unix() + 1, Nonce: "n"})
	for _, s := range []string{good, good + "x", "", ".", "a.b", strings.ToUpper(good)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if tk, err := openTicket(secret, forSignIn, s, now); err == nil && s != good {
			t.Errorf("openTicket(%q) = %+v", s, tk)
		}
	})
}

func FuzzTokenKind(f *testing.F) {
	for _, s := range []string{NewOperatorToken(), NewAPIKey(), "e2b_", "berth_member_", "berth_root_x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, ok := tokenKind(s); ok && (len(s) > 160 || strings.ContainsAny(s, " /\x00\n")) {
			t.Errorf("tokenKind(%q) accepts it", s)
		}
	})
}
