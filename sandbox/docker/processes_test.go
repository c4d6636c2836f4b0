package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth"
	"berth/sandbox"
)

// TestProcessTrees holds commands to their supervisor.
func TestProcessTrees(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, 0)
	v := memberView("c1")
	count := func(name string) string { return bash(t, m, v, "pgrep -xc "+name, time.Minute).Stdout }

	// Escapes by double fork and setsid die with the timeout.
	a := bash(t, m, v, "cp /bin/sleep /tmp/escape; (setsid setsid /tmp/escape 1000 &) ; setsid nohup /tmp/escape 1000 & python3 -c \"import os\nif os.fork()==0:\n os.setsid()\n if os.fork()==0: os.execv('/tmp/escape',['escape','1000'])\" ; sleep 1000", time.Second)
	if got := count("escape"); a.Reason != "timeout" || got != "0\n" {
		t.Errorf("escapes: %+v, %q are left", a, got)
	}
	// Background children survive the call, and its end is not delayed by them.
	start := time.Now()
	a = bash(t, m, v, "cp /bin/sleep /tmp/server; (setsid /tmp/server 1000 &); nohup /tmp/server 1000 & echo started", 10*time.Second)
	if got := count("server"); a.Stdout != "started\n" || time.Since(start) > 5*time.Second || got != "2\n" {
		t.Errorf("background: %+v after %v, %q are left", a, time.Since(start), got)
	}
	// A server answers the next call.
	bash(t, m, v, "cd /tmp; echo hi > index; python3 -m http.server 8123 &", time.Minute)
	if a := bash(t, m, v, "for i in $(seq 100); do curl -s http://localhost:8123/index && break; sleep 0.1; done", time.Minute); a.Stdout != "hi\n" {
		t.Errorf("server of an earlier call: %+v", a)
	}
	// Orphans leave no zombies.
	bash(t, m, v, "for i in $(seq 2000); do (true &) ; done", time.Minute)
	if a := bash(t, m, v, "ps -eo stat= | grep -c Z", time.Minute); a.Stdout != "0\n" {
		t.Errorf("zombies: %+v", a)
	}
	// A command that kills its supervisor, and everything, ends its own tree only.
	a = bash(t, m, v, "cp /bin/sleep /tmp/rogue; setsid /tmp/rogue 1000 & kill -9 $PPID; sleep 1000", 5*time.Second)
	if a.Reason != "signal" || !strings.Contains(a.Stderr, "supervisor") {
		t.Errorf("killed supervisor: %+v", a)
	}
	eventually(t, "the rogue tree is gone", func() bool { return count("rogue") == "0\n" })
	if got := count("server"); got != "2\n" {
		t.Errorf("servers after another call killed its supervisor: %q, want 2", got)
	}
	// A stopped supervisor does not stop the answer.
	start = time.Now()
	if a := bash(t, m, v, "kill -STOP $PPID; sleep 1000", time.Second); a.Reason != "timeout" || time.Since(start) > 20*time.Second {
		t.Errorf("stopped supervisor: %+v after %v", a, time.Since(start))
	}
	// Nothing that a machine can send ends its agent.
	bash(t, m, v, "for s in $(seq 1 64); do kill -$s 1 2>/dev/null; done; kill -9 -1", 5*time.Second)
	if a := bash(t, m, v, "echo ok; ls /tmp/server", time.Minute); a.Stdout != "ok\n/tmp/server\n" {
		t.Errorf("after all signals to everything: %+v, want the same machine to answer", a)
	}
}

// TestManyCallsAtOnce makes 50 first calls of one chat at once.
func TestManyCallsAtOnce(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, 1)
	v := memberView("c1")
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			if a := bash(t, m, v, fmt.Sprintf("echo %d; sleep 0.1", i), time.Minute); a.Stdout != fmt.Sprintf("%d\n", i) {
				t.Errorf("call %d: %+v", i, a)
			}
		})
	}
	group.Wait()
	if running, _ := m.Counts(); running != 1 {
		t.Errorf("%d machines run, want 1", running)
	}
}

// TestLifeOnTheEngine stops, wakes, kills and takes over real containers.
func TestLifeOnTheEngine(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, 0)
	v := memberView("c1")
	bash(t, m, v, "echo kept > f; echo home > ~/g; echo gone > /tmp/t", time.Minute)
	must(t, m.Stop(t.Context(), v))
	if a := bash(t, m, v, "cat f ~/g; cat /tmp/t 2>/dev/null", time.Minute); a.Stdout != "kept\nhome\n" {
		t.Errorf("after waking: %+v", a)
	}
	all, err := w.provider.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("containers: %v, %v", all, err)
	}
	must(t, w.provider.api.ContainerKill(t.Context(), all[0].ID, "KILL"))
	eventually(t, "the killed machine sleeps", func() bool {
		d, err := m.Machine(t.Context(), v.Machine)
		return err == nil && d.State == sandbox.Sleeping && strings.Contains(d.Reason, "exit code 137")
	})
	if a := bash(t, m, v, "cat f", time.Minute); a.Stdout != "kept\n" {
		t.Errorf("after its container was killed: %+v", a)
	}
	// Another chat of the member sees the same disk at once, and only it.
	other := memberView("c2")
	if a := bash(t, m, other, "cat ../c1/f; ls ~", time.Minute); a.Stdout != "kept\nworkspace\n" {
		t.Errorf("another chat: %+v", a)
	}
	key := berth.View{Workspace: "acme", Machine: berth.NewMachineID(), Chat: "k1", EndUser: "bob", Experts: []berth.ID{"profy"}}
	if a := bash(t, m, key, "echo x > f; find ~ -type f", time.Minute); a.Stdout != "/home/user/workspace/profy/k1/f\n" {
		t.Errorf("a key's chat: %+v", a)
	}
	must(t, m.Destroy(t.Context(), key))
}

func TestTakeOverAfterRestart(t *testing.T) {
	w := newWorld(t)
	v := memberView("c1")
	m := sandbox.New(sandbox.Options{Mounts: w.mounts, Provider: w.provider, Records: w.records, SlotsDir: w.slotsDir, Pool: 1})
	must(t, m.Start(t.Context()))
	bash(t, m, v, "echo mark > /tmp/mark; nohup sleep 1000 >/dev/null 2>&1 &", time.Minute)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, m.Close(ctx))
	m = w.manager(t, 0)
	if a := bash(t, m, v, "cat /tmp/mark; pgrep -c sleep", time.Minute); a.Stdout != "mark\n1\n" {
		t.Errorf("after a restart: %+v, want the same machine with its background process", a)
	}
	all, err := w.provider.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Errorf("containers after a restart: %v, %v, want the machine's alone", all, err)
	}
}

func TestMissingImage(t *testing.T) {
	w := newWorld(t)
	o := w.provider.o
	o.Image = "berth-machine:missing"
	p, err := New(o)
	must(t, err)
	defer p.Close()
	slot, err := w.mounts.NewSlot(t.Context())
	must(t, err)
	defer w.mounts.ReleaseSlot(t.Context(), slot)
	_, infoErr := p.Info(t.Context())
	_, createErr := p.Create(t.Context(), slot)
	for what, err := range map[string]error{"info": infoErr, "create": createErr} {
		if !errors.Is(err, berth.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "run make image") {
			t.Errorf("%s without the image: %v, want what to run", what, err)
		}
	}
}

// TestClosedDirectory has a machine close its working directory: the error names
// it, and opening it again is enough.
func TestClosedDirectory(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, 0)
	v := memberView("c1")
	bash(t, m, v, "chmod 0 .", time.Minute)
	call := sandbox.Call{ID: "c2", Expert: berth.DefaultExpert, Tool: "bash", Args: []byte(`{"command":"true"}`)}
	if _, err := m.Run(t.Context(), v, call); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "/home/user/workspace/profy/c1") {
		t.Errorf("command in a closed directory: %v, want a refusal that names it", err)
	}
	must(t, os.Chmod(filepath.Join(w.mounts.Tree(berth.MemberTree("acme", "ann")), "profy/c1"), 0o755))
	if a := bash(t, m, v, "pwd", time.Minute); a.Stdout != "/home/user/workspace/profy/c1\n" {
		t.Errorf("after it is open again: %+v", a)
	}
}
