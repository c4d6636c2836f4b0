package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// command prepares a command of the program as a person with a token runs it.
func (b *berth) command(t testing.TB, token string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program(t), args...)
	cmd.Env = append(os.Environ(), "BERTH_URL="+b.URL, "BERTH_TOKEN="+token)
	return cmd
}

// run runs a command that must succeed and returns what it printed.
func (b *berth) run(t testing.TB, token string, args ...string) string {
	t.Helper()
	cmd := b.command(t, token, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("berth %q: %v\n%s%s", args, err, out, errs.String())
	}
	return string(out)
}

// TestCommands uses an installation by the commands alone, as a person at a
// terminal does: what `berth up` says to try first.
func TestCommands(t *testing.T) {
	b := start(t)
	env := ". " + filepath.Join(b.State, "run", "member.env")
	tried := exec.Command("sh", "-ec", env+`; "$0" tool hello bash command='date > now.txt; cat now.txt'; "$0" files cat me/profy/hello/now.txt`, program(t))
	if out, err := tried.CombinedOutput(); err != nil || strings.Count(string(out), "20") < 2 {
		t.Errorf("the commands to try: %v\n%s", err, out)
	}

	watch := b.command(t, b.Member, "events")
	lines, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		for s := bufio.NewScanner(lines); s.Scan() && !strings.Contains(s.Text(), "me/dir/put.txt"); {
		}
	}()
	local := filepath.Join(t.TempDir(), "put.txt")
	if err := os.WriteFile(local, []byte("put\xff"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The stream may begin after a change: it is made again until it is seen.
	eventually(t, "berth events tells of the file", 20*time.Second, func() bool {
		b.run(t, b.Member, "files", "put", local, "me/dir/")
		select {
		case <-seen:
			return true
		case <-time.After(200 * time.Millisecond):
			return false
		}
	})
	watch.Process.Kill()
	watch.Wait()
	mustContain(t, "berth files ls", b.run(t, b.Member, "files", "ls", "me/dir"), "put.txt")
	equal(t, "berth files cat", b.run(t, b.Member, "files", "cat", "me/dir/put.txt"), "put\xff")
	mustContain(t, "berth tool", b.run(t, b.Member, "tool", "hello", "read_file", "path=/home/user/workspace/dir/put.txt"), `"content_base64": "cHV0/w=="`)
	mustContain(t, "berth status", b.run(t, "", "status", "--state", b.State), "machines")
	b.run(t, "", "flush", "--state", b.State, b.Workspace+"/members/"+b.User)
	if content, _ := b.bucket(t).object(t, b.Workspace+"/members/"+b.User+"/dir/put.txt"); content != "put\xff" {
		t.Errorf("the object after berth flush TREE is %q", content)
	}
	b.run(t, b.Member, "files", "rm", "-r", "me/dir")
	b.call(t, b.Member, "GET", "/v1/files/me/dir/put.txt", nil).refused(t, 404, "put.txt")

	id, key, _ := strings.Cut(strings.TrimSpace(b.run(t, b.Admin, "keys", "add", "ci")), " ")
	mustContain(t, "berth tool with the key", b.run(t, key, "tool", "k", "bash", "command=pwd", "--end-user", "u"), "/home/user/workspace/profy/k")
	b.run(t, b.Admin, "keys", "rm", id)
	mustContain(t, "berth keys ls", b.run(t, b.Admin, "keys", "ls"), id)
	if out, err := b.command(t, key, "tool", "k", "bash", "command=true").CombinedOutput(); err == nil || !strings.Contains(string(out), "revoked") {
		t.Errorf("a revoked key: %v, %s", err, out)
	}
	if out, err := b.command(t, "", "flush", "--state", b.State, "no/tree").CombinedOutput(); err == nil || !strings.Contains(string(out), "no/tree") {
		t.Errorf("berth flush of no tree: %v, %s", err, out)
	}
}
