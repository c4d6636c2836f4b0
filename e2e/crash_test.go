package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// children returns the processes of a running berth by the name of their command.
func (b *berth) children(t testing.TB) map[string]int {
	t.Helper()
	out := make(map[string]int)
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // it ended meanwhile
		}
		after := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(after) < 2 || after[1] != strconv.Itoa(b.cmd.Process.Pid) {
			continue
		}
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		if words := strings.Split(string(line), "\x00"); len(words) > 1 {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			out[words[1]] = pid
		}
	}
	return out
}

// TestKilledChildren kills each process of berth in turn: up starts it again and
// a chat goes on with its files.
func TestKilledChildren(t *testing.T) {
	b := start(t)
	b.call(t, b.Member, "PUT", "/v1/chats/c", map[string]any{}).want(t, 200, nil)
	b.sh(t, b.Member, "c", "echo 0 > /home/user/workspace/n")
	for i, name := range []string{"store", "sandboxd", "gateway", "mountd"} {
		pid := b.children(t)[name]
		if pid == 0 {
			t.Fatalf("berth up has no child %q: %v", name, b.children(t))
		}
		syscall.Kill(pid, syscall.SIGKILL)
		eventually(t, name+" runs again", 30*time.Second, func() bool {
			again := b.children(t)[name]
			return again != 0 && again != pid
		})
		command := fmt.Sprintf("cat /home/user/workspace/n && echo %d > /home/user/workspace/n", i+1)
		eventually(t, "a tool call succeeds after kill -9 of "+name, 60*time.Second, func() bool {
			a, err := b.try(t, b.Member, "POST", "/v1/chats/c/tools/bash", map[string]any{"command": command})
			return err == nil && a.Status == 200 && strings.Contains(string(a.Body), fmt.Sprintf(`"stdout":"%d\n"`, i))
		})
	}
	b.flush(t)
	content, _ := b.bucket(t).object(t, fmt.Sprintf("%s/members/%s/n", b.Workspace, b.User))
	equal(t, "object n", content, "4\n")
}

// TestKilledWhole kills all of berth at once under load; what was written and
// closed before is there after the next start.
func TestKilledWhole(t *testing.T) {
	state := stateDir(t)
	b := up(t, state)
	b.call(t, b.Member, "PUT", "/v1/chats/c", map[string]any{}).want(t, 200, nil)
	b.sh(t, b.Member, "c", "for i in $(seq 300); do echo $i > /home/user/workspace/f$i; done")
	for _, pid := range b.children(t) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	b.kill()

	again := up(t, state)
	t.Cleanup(func() { again.stop(t) })
	equal(t, "tokens after a restart", again.Member, b.Member)
	out := again.sh(t, again.Member, "c", "cd /home/user/workspace && for i in $(seq 300); do test \"$(cat f$i)\" = $i || echo lost $i; done; echo checked")
	equal(t, "files after kill -9", out, "checked")
	again.flush(t)
	bucket := again.bucket(t)
	for _, i := range []int{1, 150, 300} {
		content, _ := bucket.object(t, fmt.Sprintf("%s/members/%s/f%d", again.Workspace, again.User, i))
		equal(t, fmt.Sprint("object f", i), content, fmt.Sprintln(i))
	}
	if len(again.containers(t)) > 12 {
		t.Errorf("containers of the dead run are left: %d", len(again.containers(t)))
	}
}

// TestStopAndGoOn stops berth with the terminal's signal right after a write and
// starts it again on the same state.
func TestStopAndGoOn(t *testing.T) {
	state := stateDir(t)
	b := up(t, state)
	var before, after struct {
		Title   string
		Machine struct{ ID, State string }
	}
	b.call(t, b.Member, "PUT", "/v1/chats/c", map[string]any{"title": "Kept"}).want(t, 200, &before)
	b.sh(t, b.Member, "c", "echo home > ~/g; echo disk > f; (setsid sleep 1000 &)")
	var status struct{ Store struct{ Bucket string } }
	b.status(t, &status)
	b.stopBy(t, os.Interrupt)
	object := filepath.Join(state, "store", status.Store.Bucket, b.Workspace, "members", b.User, "profy/c/f")
	if text, err := os.ReadFile(object); err != nil || string(text) != "disk\n" {
		t.Errorf("the object after the stop: %q, %v", text, err)
	}

	again := up(t, state)
	t.Cleanup(func() { again.stop(t) })
	equal(t, "tokens", []string{again.Operator, again.Admin, again.Member, again.APIKey}, []string{b.Operator, b.Admin, b.Member, b.APIKey})
	again.call(t, again.Member, "GET", "/v1/chats/c", nil).want(t, 200, &after)
	before.Machine.State = "sleeping"
	equal(t, "the chat after the start", after, before)
	equal(t, "files after the start", again.sh(t, again.Member, "c", "cat f ~/g"), "disk\nhome")
}

// TestSecondUpIsRefused starts berth twice on one state directory.
func TestSecondUpIsRefused(t *testing.T) {
	b := start(t, "--sandboxes=off")
	out, err := exec.Command(program(t), "up", "--state", b.State, "--listen", "127.0.0.1:0", "--json").CombinedOutput()
	if err == nil || !strings.Contains(string(out), b.State) || !strings.Contains(string(out), "in use") {
		t.Errorf("second berth up: %v\n%s", err, out)
	}
	b.call(t, b.Member, "PUT", "/v1/chats/c", map[string]any{}).want(t, 200, nil)
	b.call(t, b.Member, "POST", "/v1/chats/c/tools/bash", map[string]any{"command": "true"}).refused(t, 503, "off")
	b.call(t, b.Member, "PUT", "/v1/files/me/a/b", "content").want(t, 201, nil)
	equal(t, "file", string(b.call(t, b.Member, "GET", "/v1/files/me/a/b", nil).Body), "content")
}

// TestFirstCallsMakeOneMachine races 50 first calls of one chat.
func TestFirstCallsMakeOneMachine(t *testing.T) {
	b := start(t)
	b.call(t, b.Member, "PUT", "/v1/chats/c", map[string]any{}).want(t, 200, nil)
	var calls sync.WaitGroup
	boots := make([]string, 50)
	for i := range boots {
		calls.Add(1)
		go func() {
			defer calls.Done()
			a := b.call(t, b.Member, "POST", "/v1/chats/c/tools/bash", map[string]any{"command": "stat -c %Z /proc/1; cat /proc/sys/kernel/hostname"})
			boots[i] = fmt.Sprint(a.Status, string(a.Body[:min(len(a.Body), 60)]))
		}()
	}
	calls.Wait()
	seen := make(map[string]bool)
	for _, s := range boots {
		if !strings.HasPrefix(s, "200") {
			t.Errorf("a first call: %s", s)
		}
		seen[s] = true
	}
	if len(seen) != 1 {
		t.Errorf("50 first calls met %d machines: %v", len(seen), seen)
	}
}
