package sandbox_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth"
	"berth/sandbox"
	"berth/sandbox/agent"
)

func TestBadCalls(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	long := strings.Repeat("x", agent.MaxCommand+1)
	for _, c := range []struct {
		tool, args string
		want       error
		says       string
	}{
		{"rm", `{}`, fs.ErrNotExist, `unknown tool "rm"`},
		{"bash", `{`, fs.ErrInvalid, "arguments of bash"},
		{"bash", `[]`, fs.ErrInvalid, "arguments of bash"},
		{"bash", `{}{}`, fs.ErrInvalid, "arguments of bash"},
		{"bash", `{"comand":"true"}`, fs.ErrInvalid, `"comand"`},
		{"bash", `{}`, fs.ErrInvalid, "command is empty"},
		{"bash", `{"command":"a\u0000b"}`, fs.ErrInvalid, "NUL"},
		{"bash", `{"command":"` + long + `"}`, fs.ErrInvalid, "at most 102400"},
		{"bash", `{"command":"true","timeout_ms":0}`, fs.ErrInvalid, "timeout_ms"},
		{"bash", `{"command":"true","timeout_ms":600001}`, fs.ErrInvalid, "timeout_ms"},
		{"bash", `{"command":"true","timeout_ms":1e99}`, fs.ErrInvalid, "arguments of bash"},
		{"read_file", `{}`, fs.ErrInvalid, "path is empty"},
		{"read_file", `{"path":"a","offset":-1}`, fs.ErrInvalid, "offset"},
		{"read_file", `{"path":"a","max_bytes":10485761}`, fs.ErrInvalid, "max_bytes"},
		{"read_file", `{"path":"` + strings.Repeat("p", 4097) + `"}`, fs.ErrInvalid, "4097 bytes"},
		{"write_file", `{"path":"a"}`, fs.ErrInvalid, "exactly one"},
		{"write_file", `{"path":"a","content":"x","content_base64":""}`, fs.ErrInvalid, "exactly one"},
		{"write_file", `{"path":"a","content_base64":"?"}`, fs.ErrInvalid, "base64"},
		{"write_file", `{"path":"a","content":"` + strings.Repeat("x", agent.MaxFile+1) + `"}`, fs.ErrInvalid, "10485760"},
		{"write_file", strings.Repeat(" ", sandbox.MaxArgs+1), fs.ErrInvalid, "arguments have"},
		{"list_files", `{"limit":0}`, fs.ErrInvalid, "limit"},
		{"list_files", `{"limit":10001}`, fs.ErrInvalid, "limit"},
	} {
		_, err := m.Run(t.Context(), v, sandbox.Call{ID: "c", Expert: "profy", Tool: c.tool, Args: json.RawMessage(c.args)})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			shown := c.args[:min(len(c.args), 60)]
			t.Errorf("%s %s: got %v, want %v that says %q", c.tool, shown, err, c.want, c.says)
		}
	}
	if n := w.provider.Created(); n != 0 {
		t.Errorf("bad calls made %d containers", n)
	}
	for _, bad := range []berth.ID{"", "a/b", "..", ".x", "a\x00b", "é", "shared", berth.ID(strings.Repeat("x", 129))} {
		if _, err := m.Run(t.Context(), v, sandbox.Call{ID: "c", Expert: bad, Tool: "bash", Args: json.RawMessage(`{"command":"true"}`)}); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("expert %q: %v, want invalid", bad, err)
		}
	}
}

func TestBashAnswers(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	if a := bash(t, m, v, "echo out; echo err >&2; pwd; exit 3"); a.ExitCode != 3 || a.Reason != "exit" || a.Stderr != "err\n" ||
		!strings.HasPrefix(a.Stdout, "out\n") || !strings.HasSuffix(a.Stdout, "/workspace/profy/c1\n") {
		t.Errorf("plain: %+v", a)
	}
	if a := bash(t, m, v, "kill -TERM $$"); a.ExitCode != 143 || a.Reason != "signal" {
		t.Errorf("killed: %+v", a)
	}
	if a := bash(t, m, v, `printf 'a\377\200b'`); a.StdoutBase64 != base64.StdEncoding.EncodeToString([]byte("a\xff\x80b")) || a.Stdout != "a\uFFFDb" {
		t.Errorf("not UTF-8: %+v", a)
	}
	if a := bash(t, m, v, "cat; echo done"); a.Stdout != "done\n" {
		t.Errorf("stdin is not empty: %+v", a)
	}
	start := time.Now()
	a, err := call(t.Context(), m, v, "bash", args{"command": "trap '' TERM; sleep 300 & wait; sleep 300", "timeout_ms": 100})
	if err != nil || a.Reason != "timeout" || time.Since(start) > 5*time.Second {
		t.Errorf("timeout: %+v, %v after %v", a, err, time.Since(start))
	}
	start = time.Now()
	if a := bash(t, m, v, "sleep 300 & echo ok"); a.Stdout != "ok\n" || a.Reason != "exit" || time.Since(start) > 5*time.Second {
		t.Errorf("background child: %+v after %v", a, time.Since(start))
	}
	a = bash(t, m, v, "head -c 50000000 /dev/zero | tr '\\0' 'é' ; echo; echo end")
	if !a.Truncated || a.StdoutBytes < 50_000_000 || len(a.Stdout) > 2*agent.MaxOutput || !strings.HasSuffix(a.Stdout, "\nend\n") ||
		!strings.Contains(a.Stdout, "bytes left out") {
		t.Errorf("long output: truncated %v, %d bytes, kept %d", a.Truncated, a.StdoutBytes, len(a.Stdout))
	}
	// Characters cut at the budget's edges leave no trace.
	a = bash(t, m, v, "python3 -c \"print('é' * 400000, end='')\"")
	if !a.Truncated || strings.Contains(a.Stdout, "\uFFFD") || a.StdoutBase64 != "" {
		t.Errorf("cut characters: truncated %v, base64 %d", a.Truncated, len(a.StdoutBase64))
	}
}

func TestFileTools(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	use := func(tool string, a args) (answer, error) { return call(t.Context(), m, v, tool, a) }
	if a, err := use("write_file", args{"path": "a/b/c.txt", "content": "héllo"}); err != nil || a.Size != 6 {
		t.Fatalf("write: %+v, %v", a, err)
	}
	if a, err := use("read_file", args{"path": "a/b/c.txt"}); err != nil || a.Content == nil || *a.Content != "héllo" || a.Size != 6 || a.Truncated {
		t.Errorf("read: %+v, %v", a, err)
	}
	if a, err := use("read_file", args{"path": "a/b/c.txt", "max_bytes": 2}); err != nil || a.Base64 == nil || !a.Truncated {
		t.Errorf("read of half a character: %+v, %v", a, err)
	}
	if a, err := use("read_file", args{"path": "a/b/c.txt", "offset": 100}); err != nil || a.Content == nil || *a.Content != "" || a.Size < 6 {
		t.Errorf("read past the end: %+v, %v", a, err)
	}
	big := bytes.Repeat([]byte{0, 1, 2, 255}, agent.MaxFile/4)
	if _, err := use("write_file", args{"path": "big", "content_base64": big}); err != nil {
		t.Errorf("write of the largest file: %v", err)
	}
	if a, err := use("read_file", args{"path": "big"}); err != nil || a.Base64 == nil || *a.Base64 != base64.StdEncoding.EncodeToString(big) {
		t.Errorf("read of the largest file: size %d, %v", a.Size, err)
	}
	bash(t, m, v, "mkdir many; cd many; seq -f n%06g 3000 | xargs touch")
	if a, err := use("list_files", args{"path": "many", "limit": 10}); err != nil || !a.Truncated || len(a.Entries) != 10 || a.Entries[9].Name != "n000010" {
		t.Errorf("list of many: %d entries, truncated %v, %v", len(a.Entries), a.Truncated, err)
	}
}

// TestOddFiles meets what a machine can put in the tools' way.
func TestOddFiles(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	use := func(tool string, a args) (answer, error) { return call(t.Context(), m, v, tool, a) }
	bash(t, m, v, "mkdir -p a/b; echo old > a/b/c.txt; chmod 755 a/b/c.txt; echo x > big")
	dir := filepath.Join(w.mounts.Tree(berth.MemberTree("acme", "ann")), "profy/c1")
	setup := errors.Join(
		os.Symlink("a/b/c.txt", filepath.Join(dir, "link")),
		os.Symlink("nowhere", filepath.Join(dir, "dangling")), syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644),
		os.WriteFile(filepath.Join(dir, "sparse"), nil, 0o644), os.Truncate(filepath.Join(dir, "sparse"), 1<<43),
		os.WriteFile(filepath.Join(dir, "line\nbreak"), nil, 0o644), os.WriteFile(filepath.Join(dir, "bad\xff"), nil, 0o644),
	)
	if setup != nil {
		t.Fatal(setup)
	}
	if _, err := use("write_file", args{"path": "link", "content": "through"}); err != nil {
		t.Errorf("write through a link: %v", err)
	}
	info, err := os.Lstat(filepath.Join(dir, "a/b/c.txt"))
	if err != nil || info.Mode().Perm() != 0o755 || info.Size() != 7 {
		t.Errorf("file behind the link: %v, %v: want its mode kept and new content", info, err)
	}
	if a, err := use("read_file", args{"path": "sparse"}); err != nil || a.Size != 1<<43 || !a.Truncated {
		t.Errorf("sparse file: size %d, truncated %v, %v", a.Size, a.Truncated, err)
	}
	for _, c := range []struct {
		tool, path string
		want       error
	}{
		{"read_file", "missing", fs.ErrNotExist}, {"read_file", "a", fs.ErrInvalid}, {"read_file", "fifo", fs.ErrInvalid},
		{"read_file", "big/x", fs.ErrInvalid}, {"read_file", "dangling", fs.ErrNotExist}, {"list_files", "missing", fs.ErrNotExist},
		{"list_files", "big", fs.ErrInvalid}, {"write_file", "a", fs.ErrInvalid}, {"write_file", "fifo", fs.ErrInvalid},
		{"write_file", "x/", fs.ErrInvalid}, {"write_file", "dangling", fs.ErrNotExist}, {"write_file", strings.Repeat("n", 300), fs.ErrInvalid},
	} {
		a := args{"path": c.path}
		if c.tool == "write_file" {
			a["content"] = "x"
		}
		if _, err := use(c.tool, a); !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.path[:min(len(c.path), 100)]) {
			t.Errorf("%s %q: %v, want %v that names it", c.tool, c.path, err, c.want)
		}
	}
	a, err := use("list_files", args{})
	if err != nil || a.Truncated {
		t.Fatalf("list: %v", err)
	}
	kinds := map[string]string{}
	for _, e := range a.Entries {
		kinds[e.Name] = e.Kind
		if e.Name == "bad\uFFFD" && e.NameBase64 != base64.StdEncoding.EncodeToString([]byte("bad\xff")) {
			t.Errorf("a name that is not UTF-8: %+v", e)
		}
	}
	want := map[string]string{"a": "dir", "big": "file", "link": "symlink", "dangling": "symlink", "fifo": "other",
		"sparse": "file", "line\nbreak": "file", "bad\uFFFD": "file"}
	for name, kind := range want {
		if kinds[name] != kind {
			t.Errorf("list: %q is %q, want %q", name, kinds[name], kind)
		}
	}
	if len(kinds) != len(want) {
		t.Errorf("list: %v: temporary files are left", kinds)
	}
}

func TestCallsAreRemembered(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	before := time.Now()
	bash(t, m, v, "true")
	info, ok := m.CallByID("call1")
	if !ok || info.Checkpoint == 0 || info.View.Machine != v.Machine || info.Ended.Before(info.Started) {
		t.Errorf("call: %+v, %v", info, ok)
	}
	if calls := m.CallsOn(berth.MemberTree("acme", "ann"), before, time.Now()); len(calls) != 1 || calls[0].ID != "call1" {
		t.Errorf("calls on the member's tree: %+v", calls)
	}
	if calls := m.CallsOn(berth.MemberTree("acme", "bob"), before, time.Now()); len(calls) != 0 {
		t.Errorf("calls on another member's tree: %+v", calls)
	}
	if calls := m.CallsOn(berth.MemberTree("acme", "ann"), before.Add(-time.Hour), before); len(calls) != 0 {
		t.Errorf("calls of an hour ago: %+v", calls)
	}
}
