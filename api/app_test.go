package api

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"berth"
)

func TestApp(t *testing.T) {
	g := newGateway(t, nil)
	get := func(path, accept string) answer {
		return g.do("", "GET", path, "", "Host", "gw.localhost:8080", "Accept", accept)
	}
	for _, path := range []string{"/", "/index.html", "/files/me/a", "/files/me/b/c.py", "/chats"} {
		a := get(path, "text/html,*/*").ok(200, nil)
		if !strings.Contains(a.body, "<title>Berth") || a.header.Get("Cache-Control") != "no-cache" {
			t.Errorf("GET %s: %q, %v", path, a.body, a.header)
		}
		csp := a.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'self'", "script-src 'self';", "frame-ancestors 'none'", "frame-src http://*.gw.localhost:8080", "object-src 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("GET %s: the policy %q lacks %q", path, csp, want)
			}
		}
	}
	js := get("/assets/app-1a2.js", "*/*").ok(200, nil)
	if !strings.Contains(js.header.Get("Cache-Control"), "immutable") || !strings.HasPrefix(js.header.Get("Content-Type"), "text/javascript") {
		t.Errorf("a hashed file: %v", js.header)
	}
	if a := get("/icon.svg", "image/*").ok(200, nil); a.header.Get("Cache-Control") != "no-cache" {
		t.Errorf("a file without hash: %v", a.header)
	}
	get("/assets/gone-123.js", "*/*").refused(404, "not_found", "gone")
	get("/assets", "text/html").ok(200, nil)
	get("/x", "application/json").refused(404, "not_found", "/x")
	get("/v1/nothing", "text/html").refused(404, "not_found", "openapi")
	get("/v1", "text/html").refused(404, "not_found")
	a := g.do(g.ann, "PATCH", "/v1/chats/c", "")
	a.refused(405, "invalid", "Allow")
	if allow := a.header.Get("Allow"); !strings.Contains(allow, "PUT") {
		t.Errorf("Allow is %q", allow)
	}
}

func TestHeaders(t *testing.T) {
	g := newGateway(t, nil)
	for _, path := range []string{"/v1/me", "/v1/none", "/v1/chats/none", "/v1/health"} {
		h := g.do(g.ann, "GET", path, "").header
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Security-Policy") == "" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("GET %s: %v", path, h)
		}
	}
}

// TestOpenAPI holds the document against the route table, both ways.
func TestOpenAPI(t *testing.T) {
	g := newGateway(t, nil)
	text := g.do("", "GET", "/v1/openapi.yaml", "").ok(200, nil).body
	var doc struct {
		Paths      map[string]map[string]yaml.Node
		Components map[string]map[string]any
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]string) // "METHOD path" to access
	for path, verbs := range doc.Paths {
		for verb, node := range verbs {
			if !slices.Contains([]string{"get", "head", "put", "post", "delete"}, verb) {
				continue
			}
			var op struct {
				Access    string `yaml:"x-access"`
				Summary   string
				Security  *[]any
				Responses map[string]any
			}
			if err := node.Decode(&op); err != nil {
				t.Fatal(err)
			}
			if op.Security != nil && len(*op.Security) == 0 {
				op.Access = "public"
			}
			if op.Summary == "" || len(op.Responses) == 0 || op.Access == "" {
				t.Errorf("%s %s lacks a summary, responses or x-access", verb, path)
			}
			documented[strings.ToUpper(verb)+" "+path] = op.Access
		}
	}
	parameter := regexp.MustCompile(`:(\w+)`)
	served := make(map[string]bool)
	for _, r := range g.server.routes() {
		if r.path == "/*" {
			continue // the web app
		}
		path := parameter.ReplaceAllString(r.path, "{$1}")
		if strings.HasPrefix(path, "/v1/files/") {
			path = strings.TrimSuffix(path, "/*") + "/{path}"
		}
		what := r.method + " " + path
		served[what] = true
		if documented[what] != r.access {
			t.Errorf("%s is served to %q and documented for %q", what, r.access, documented[what])
		}
	}
	for what := range documented {
		if !served[what] {
			t.Errorf("%s is documented and not served", what)
		}
	}
	for _, ref := range regexp.MustCompile(`#/components/(\w+)/(\w+)`).FindAllStringSubmatch(text, -1) {
		if doc.Components[ref[1]][ref[2]] == nil {
			t.Errorf("%s is referred to and not there", ref[0])
		}
	}
}

// TestErrorCodes holds the error table to the codes of the document.
func TestErrorCodes(t *testing.T) {
	codes := strings.Fields("invalid unauthorized forbidden not_found conflict too_large rate_limited unavailable internal")
	for _, row := range errorTable {
		status, p := answerTo(row.is)
		if !slices.Contains(codes, row.code) || status < 400 || http.StatusText(status) == "" || p.Message == "" {
			t.Errorf("%v: %d %+v", row.is, status, p)
		}
	}
	if status, p := answerTo(&berth.IDError{What: "chat", ID: "a/b", Why: "x"}); status != 400 || p.Code != "invalid" {
		t.Errorf("a bad id: %d %+v", status, p)
	}
}
