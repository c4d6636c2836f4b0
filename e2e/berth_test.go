package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A berth is one running `berth up`.
type berth struct {
	URL         string `json:"url"`
	PreviewHost string `json:"preview_host"`
	Operator    string `json:"operator_token"`
	Admin       string `json:"admin_token"`
	Member      string `json:"member_token"`
	APIKey      string `json:"api_key"`
	Workspace   string `json:"workspace"`
	User        string `json:"user"`
	State       string `json:"state"`

	cmd *exec.Cmd
	log *os.File
}

// program is the binary under test, made by `make build`.
func program(t testing.TB) string {
	t.Helper()
	path := os.Getenv("BERTH_BIN")
	if path == "" {
		path = "../bin/berth"
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `make build` first", err)
	}
	return path
}

// up starts berth on a state directory and waits until it says that it is ready.
func up(t testing.TB, state string, args ...string) *berth {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "up.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(t), append([]string{"up", "--state", state, "--listen", "127.0.0.1:0", "--json"}, args...)...)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := &berth{cmd: cmd, log: log}
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		lines <- line
		io.Copy(io.Discard, out)
	}()
	select {
	case line := <-lines:
		if err := json.Unmarshal([]byte(line), b); err != nil {
			b.kill()
			t.Fatalf("berth up printed %q (%v); its log:\n%s", line, err, b.logText())
		}
	case <-time.After(90 * time.Second):
		b.kill()
		t.Fatalf("berth up was not ready within 90 s; its log:\n%s", b.logText())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of berth up:\n%s", b.logText())
		}
		if b.cmd.ProcessState == nil { // a test that ended early
			b.kill()
		}
	})
	return b
}

// start is up on a fresh state directory, stopped at the end of the test.
func start(t testing.TB, args ...string) *berth {
	t.Helper()
	b := up(t, stateDir(t), args...)
	t.Cleanup(func() { b.stop(t) })
	return b
}

// stateDir returns a path for a state directory that the gateway's user can
// reach, which t.TempDir's cannot.
func stateDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "s")
}

func (b *berth) logText() string {
	text, _ := os.ReadFile(b.log.Name())
	if len(text) > 8000 {
		text = text[len(text)-8000:]
	}
	return string(text)
}

// stop ends berth as an operator would and checks that nothing is left.
func (b *berth) stop(t testing.TB) {
	t.Helper()
	b.stopBy(t, syscall.SIGTERM)
}

func (b *berth) stopBy(t testing.TB, s os.Signal) {
	t.Helper()
	b.cmd.Process.Signal(s)
	done := make(chan error, 1)
	go func() { done <- b.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("berth up ended with %v, want exit 0; its log:\n%s", err, b.logText())
		}
	case <-time.After(90 * time.Second):
		b.kill()
		t.Errorf("berth up did not stop within 90 s of %v; its log:\n%s", s, b.logText())
	}
	b.checkNothingLeft(t)
}

// kill ends `berth up` alone, at once; its children end with it.
func (b *berth) kill() {
	b.cmd.Process.Kill()
	b.cmd.Wait()
}

func (b *berth) checkNothingLeft(t testing.TB) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+b.State+"/") {
			t.Errorf("mount left behind: %s", line)
		}
	}
	if left := b.containers(t); len(left) != 0 {
		t.Errorf("containers left behind: %q", left)
	}
}

// containers lists those whose slots lie in this berth's state directory.
func (b *berth) containers(t testing.TB) []string {
	t.Helper()
	ids, err := exec.Command("docker", "ps", "-aq", "--no-trunc", "--filter", "label=berth.slot").Output()
	if err != nil {
		t.Fatalf("cannot list containers: %v", err)
	}
	var out []string
	for _, id := range strings.Fields(string(ids)) {
		mounts, err := exec.Command("docker", "inspect", "--format", "{{range .HostConfig.Binds}}{{.}} {{end}}{{range .Mounts}}{{.Source}} {{end}}", id).Output()
		if err == nil && strings.Contains(string(mounts), b.State+"/") {
			out = append(out, id)
		}
	}
	return out
}

// An answer is what the API said.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// call sends one request; body may be nil, a string, bytes or anything that
// marshals to JSON.
func (b *berth) call(t testing.TB, token, method, path string, body any) answer {
	t.Helper()
	a, err := b.try(t, token, method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// try is call where the gateway may be away.
func (b *berth) try(t testing.TB, token, method, path string, body any) (answer, error) {
	t.Helper()
	var r io.Reader
	switch x := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(x)
	case []byte:
		r = bytes.NewReader(x)
	case io.Reader:
		r = x
	default:
		text, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, b.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	return answer{res.StatusCode, res.Header, text}, err
}

// want checks the status and decodes the answer into out unless that is nil.
func (a answer) want(t testing.TB, status int, out any) {
	t.Helper()
	if a.Status != status {
		t.Fatalf("status %d, want %d: %.2000s", a.Status, status, a.Body)
	}
	if out != nil {
		if err := json.Unmarshal(a.Body, out); err != nil {
			t.Fatalf("cannot decode %.500q: %v", a.Body, err)
		}
	}
}

// refused checks for an error of the API with a message that holds each word.
func (a answer) refused(t testing.TB, status int, words ...string) {
	t.Helper()
	var e struct{ Code, Message string }
	if a.Status != status || json.Unmarshal(a.Body, &e) != nil || e.Code == "" || e.Message == "" {
		t.Errorf("status %d, want %d with a code and a message: %.500s", a.Status, status, a.Body)
		return
	}
	for _, w := range words {
		if !strings.Contains(e.Message, w) {
			t.Errorf("message %q does not name %q", e.Message, w)
		}
	}
}

// workspace makes a workspace and returns its admin's token.
func (b *berth) workspace(t testing.TB, name string) string {
	t.Helper()
	var made struct {
		Token string `json:"admin_token"`
	}
	b.call(t, b.Operator, "PUT", "/v1/workspaces/"+name, "{}").want(t, 200, &made)
	return made.Token
}

// member makes a member of an admin's workspace and returns the member's token.
func (b *berth) member(t testing.TB, admin, user string) string {
	t.Helper()
	var made struct{ Token string }
	b.call(t, admin, "PUT", "/v1/members/"+user, "{}").want(t, 200, &made)
	return made.Token
}

// A bash answer.
type bashResult struct {
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	ExitCode   int    `json:"exit_code"`
	Reason     string `json:"reason"`
	Truncated  bool   `json:"truncated"`
	DurationMS int    `json:"duration_ms"`
}

// bash runs a command in a chat's machine; any exit code is fine.
func (b *berth) bash(t testing.TB, token, chat, command string) bashResult {
	t.Helper()
	var r bashResult
	b.call(t, token, "POST", "/v1/chats/"+chat+"/tools/bash", map[string]any{"command": command}).want(t, 200, &r)
	return r
}

// sh runs a command that must succeed and returns what it printed, trimmed.
func (b *berth) sh(t testing.TB, token, chat, command string) string {
	t.Helper()
	r := b.bash(t, token, chat, command)
	if r.ExitCode != 0 || r.Reason != "exit" {
		t.Fatalf("%s\nended with %d (%s)\n%s\n%s", command, r.ExitCode, r.Reason, r.Stdout, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// machine returns the state of a chat's machine.
func (b *berth) machine(t testing.TB, token, chat string) string {
	t.Helper()
	var c struct {
		Machine struct{ State string }
	}
	b.call(t, token, "GET", "/v1/chats/"+chat, nil).want(t, 200, &c)
	return c.Machine.State
}

// flush waits until everything is in the bucket.
func (b *berth) flush(t testing.TB) {
	t.Helper()
	if out, err := exec.Command(program(t), "flush", "--state", b.State).CombinedOutput(); err != nil {
		t.Fatalf("berth flush: %v\n%s", err, out)
	}
}

// eventually polls until f is true or the deadline passes.
func eventually(t testing.TB, what string, within time.Duration, f func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !f(); {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func mustContain(t testing.TB, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s = %q, want it to contain %q", what, got, want)
	}
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// status decodes `berth status --json` into out.
func (b *berth) status(t testing.TB, out any) {
	t.Helper()
	text, err := exec.Command(program(t), "status", "--json", "--state", b.State).Output()
	if err != nil {
		t.Fatalf("berth status: %v", err)
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatalf("berth status printed %.500q: %v", text, err)
	}
}

// config writes a configuration file and returns its path.
func config(t testing.TB, yaml string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
