package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fakeGateway answers as the table says and notes what it was asked.
type fakeGateway struct {
	mu    sync.Mutex
	asked []string // "METHOD path body"
}

func startFakeGateway(t *testing.T, answer func(n int, r *http.Request, body string, w http.ResponseWriter)) *fakeGateway {
	t.Helper()
	g := &fakeGateway{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s %s without the token", r.Method, r.URL)
		}
		g.mu.Lock()
		g.asked = append(g.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
		n := len(g.asked)
		g.mu.Unlock()
		answer(n, r, string(body), w)
	}))
	t.Cleanup(srv.Close)
	t.Setenv("BERTH_URL", srv.URL)
	t.Setenv("BERTH_TOKEN", "secret")
	return g
}

// berthCommand runs the program and returns its exit code and output.
func berthCommand(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = exitCode(&errs, func() error {
		root := newRootCommand()
		for _, c := range root.Commands() { // main.go may know them already
			switch c.Name() {
			case "tool", "events", "files", "keys":
				root.RemoveCommand(c)
			}
		}
		root.AddCommand(newToolCommand(), newEventsCommand(), newFilesCommand(), newKeysCommand())
		root.SetArgs(args)
		root.SetOut(&out)
		root.SetErr(&errs)
		root.SetIn(strings.NewReader("from stdin"))
		return root.Execute()
	}())
	return code, out.String(), errs.String()
}

func TestTool(t *testing.T) {
	g := startFakeGateway(t, func(n int, r *http.Request, _ string, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(404)
			io.WriteString(w, `{"code":"not_found","message":"cannot find chat \"c\""}`)
			return
		}
		io.WriteString(w, `{"stdout":"<hi>"}`)
	})
	code, out, errs := berthCommand("tool", "c", "bash", "command=true", "timeout_ms=500", `x={"y":[1]}`, "n=null", "text=plain text", "eq=a=b", "in=@-", "--end-user", "u")
	if code != 0 || out != "{\n  \"stdout\": \"<hi>\"\n}\n" {
		t.Errorf("exit code %d, output %q, %q", code, out, errs)
	}
	args := `{"command":"true","eq":"a=b","in":"from stdin","n":null,"text":"plain text","timeout_ms":500,"x":{"y":[1]}}`
	want := []string{"POST /v1/chats/c/tools/bash " + args, `PUT /v1/chats/c {"end_user":"u"}`, "POST /v1/chats/c/tools/bash " + args}
	if fmt.Sprint(g.asked) != fmt.Sprint(want) {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(g.asked, "\n"), strings.Join(want, "\n"))
	}
}

func TestToolContent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("a\xffb"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startFakeGateway(t, func(_ int, _ *http.Request, _ string, w http.ResponseWriter) { io.WriteString(w, `{}`) })
	if code, _, errs := berthCommand("tool", "a/b", "write_file", "path=1", "content=@"+file); code != 0 {
		t.Error(errs)
	}
	if want := `[POST /v1/chats/a%2Fb/tools/write_file {"content_base64":"Yf9i","path":"1"}]`; fmt.Sprint(g.asked) != want {
		t.Errorf("asked %s, want %s", g.asked, want)
	}
}

func TestClientErrors(t *testing.T) {
	startFakeGateway(t, func(_ int, _ *http.Request, _ string, w http.ResponseWriter) {
		w.WriteHeader(401)
		io.WriteString(w, `{"code":"unauthorized","message":"the token is not known"}`)
	})
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"tool", "c", "bash", "command=x"}, 1, "BERTH_TOKEN"},
		{[]string{"events"}, 1, "not known"},
		{[]string{"files", "ls", "me"}, 1, "not known"},
		{[]string{"keys", "ls"}, 1, "not known"},
		{[]string{"tool", "c"}, 2, "at least 2"},
		{[]string{"tool", "c", "bash", "nonsense"}, 2, "KEY=VALUE"},
		{[]string{"tool", "c", "bash", "x=@/nonexistent"}, 1, "/nonexistent"},
		{[]string{"files", "ls", "elsewhere"}, 2, "elsewhere"},
		{[]string{"files", "ls", "chats/"}, 2, "chats/CHAT"},
		{[]string{"files", "put", "/nonexistent", "me/x"}, 1, "/nonexistent"},
		{[]string{"keys", "rm"}, 2, "accepts 1"},
		{[]string{"events", "--nonsense"}, 2, "nonsense"},
	} {
		code, _, errs := berthCommand(tt.args...)
		if code != tt.code || !strings.Contains(errs, tt.says) {
			t.Errorf("berth %v: exit code %d, %q; want %d and %q", tt.args, code, errs, tt.code, tt.says)
		}
	}
	t.Setenv("BERTH_URL", "http://127.0.0.1:1")
	if code, _, errs := berthCommand("keys", "ls"); code != 1 || !strings.Contains(errs, "127.0.0.1:1") || !strings.Contains(errs, "berth up") {
		t.Errorf("without a gateway: exit code %d, %q", code, errs)
	}
	for _, bad := range []string{"", "nonsense", "ftp://x"} {
		t.Setenv("BERTH_URL", bad)
		if code, _, errs := berthCommand("keys", "ls"); code != 2 || !strings.Contains(errs, "BERTH_URL") {
			t.Errorf("BERTH_URL=%q: exit code %d, %q", bad, code, errs)
		}
	}
	t.Setenv("BERTH_URL", "http://localhost")
	t.Setenv("BERTH_TOKEN", "")
	if code, _, errs := berthCommand("keys", "ls"); code != 2 || !strings.Contains(errs, "BERTH_TOKEN") {
		t.Errorf("without a token: exit code %d, %q", code, errs)
	}
}

func TestEvents(t *testing.T) {
	g := startFakeGateway(t, func(n int, r *http.Request, _ string, w http.ResponseWriter) {
		if n > 1 {
			if id := r.Header.Get("Last-Event-ID"); id != "e.3" {
				t.Errorf("resumed after %q, want e.3", id)
			}
			w.WriteHeader(404)
			io.WriteString(w, `{"code":"not_found","message":"gone"}`)
			return
		}
		io.WriteString(w, "retry: 1000\nid: e.0\n\n"+
			"id: e.1\nevent: fs\ndata: {\"changes\":[{\"time\":\"2026-01-02T03:04:05Z\",\"tree\":\"acme/shared\",\"path\":\"a\\nb\",\"op\":\"write\",\"kind\":\"file\",\"size\":3,\"calls\":[\"k1\"]}]}\n\n"+
			": still here\nid: e.1\n\n"+
			"id: e.2\nevent: machine\ndata: {\"chat\":\"c\",\"machine\":\"i1\",\"state\":\"running\",\"since\":\"2026-01-02T03:04:05Z\"}\n\n"+
			"id: e.3\nevent: reset\ndata: {\"reason\":\"overflow\",\"epoch\":\"e\"}\n\n")
	})
	code, out, errs := berthCommand("events", "c")
	if code != 1 || !strings.Contains(errs, "gone") {
		t.Errorf("exit code %d, %q", code, errs)
	}
	for _, want := range []string{`write  file "acme/shared/a\nb" (3 bytes) during k1`, "machine i1 of chat c: running", "missed (overflow)"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if len(g.asked) != 2 || g.asked[0] != "GET /v1/chats/c/events" {
		t.Errorf("asked %q", g.asked)
	}
}

func TestFilesCommands(t *testing.T) {
	local := filepath.Join(t.TempDir(), "local.txt")
	if err := os.WriteFile(local, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startFakeGateway(t, func(_ int, r *http.Request, _ string, w http.ResponseWriter) {
		switch {
		case r.Method == "GET" && r.URL.Query().Get("after") == "" && r.URL.Query().Get("list") == "1":
			io.WriteString(w, `{"entries":[{"name":"a","kind":"file","size":5,"mtime":"2026-01-02T03:04:05Z","mode":"0644"}],"next":"n+"}`)
		case r.Method == "GET" && r.URL.Query().Get("list") == "1":
			io.WriteString(w, `{"entries":[{"name":"l","kind":"symlink","target":"a","mode":"0777"},{"name":"x","name_base64":"/woK","kind":"dir","mode":"0755"}]}`)
		case r.Method == "GET":
			w.Header().Set("Content-Disposition", "attachment")
			io.WriteString(w, "raw\xff")
		case r.Method == "DELETE":
			w.WriteHeader(204)
		default:
			io.WriteString(w, `{}`)
		}
	})
	for _, tt := range []struct {
		args        []string
		asked, says string
	}{
		{[]string{"files", "ls", "me/d"}, "GET /v1/files/me/d?list=1&after=n%2B", "l -> a"},
		{[]string{"files", "ls", "me/d"}, "GET /v1/files/me/d?list=1&after=n%2B", `"\xff\n\n"/`},
		{[]string{"files", "cat", "/chats/c/a b"}, "GET /v1/files/chats/c/a%20b?download=1", "raw\xff"},
		{[]string{"files", "put", local, "me/d/"}, "PUT /v1/files/me/d/local.txt content", ""},
		{[]string{"files", "put", "-", "shared/x?y"}, "PUT /v1/files/shared/x%3Fy from stdin", ""},
		{[]string{"files", "rm", "me/x"}, "DELETE /v1/files/me/x", ""},
		{[]string{"files", "rm", "-r", "me/x"}, "DELETE /v1/files/me/x?recursive=1", ""},
	} {
		code, out, errs := berthCommand(tt.args...)
		if code != 0 || !strings.Contains(out, tt.says) || g.asked[len(g.asked)-1] != tt.asked {
			t.Errorf("berth %v: exit code %d, %q %q, asked %q; want %q and %q", tt.args, code, out, errs, g.asked[len(g.asked)-1], tt.says, tt.asked)
		}
	}
}

func TestKeysCommands(t *testing.T) {
	g := startFakeGateway(t, func(_ int, r *http.Request, _ string, w http.ResponseWriter) {
		switch r.Method {
		case "GET":
			io.WriteString(w, `{"keys":[{"id":"k1","label":"ci","created":"2026-01-02T03:04:05Z","revoked":"2026-01-03T03:04:05Z"}]}`)
		case "POST":
			w.WriteHeader(201)
			json.NewEncoder(w).Encode(map[string]string{"id": "k2", "key": "e2b_x"})
		default:
			w.WriteHeader(204)
		}
	})
	for _, tt := range []struct {
		args        []string
		asked, says string
	}{
		{[]string{"keys", "ls"}, "GET /v1/keys", "k1  ci  made 2026-01-02"},
		{[]string{"keys", "add", "ci"}, `POST /v1/keys {"label":"ci"}`, "k2 e2b_x\n"},
		{[]string{"keys", "rm", "k2"}, "DELETE /v1/keys/k2", ""},
	} {
		code, out, errs := berthCommand(tt.args...)
		if code != 0 || !strings.Contains(out, tt.says) || g.asked[len(g.asked)-1] != tt.asked {
			t.Errorf("berth %v: exit code %d, %q %q, asked %q", tt.args, code, out, errs, g.asked[len(g.asked)-1])
		}
	}
}
