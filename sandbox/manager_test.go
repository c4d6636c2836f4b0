package sandbox_test

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

func TestLazyAndExactlyOne(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	if s, _ := state(t, m, v); s != sandbox.Waiting {
		t.Errorf("before the first call: state %q, want waiting", s)
	}
	if n := w.provider.Created(); n != 0 {
		t.Fatalf("before the first call: %d containers", n)
	}
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			a, err := call(t.Context(), m, v, "bash", args{"command": fmt.Sprintf("echo %d", i)})
			if err != nil || a.Stdout != fmt.Sprintf("%d\n", i) {
				t.Errorf("call %d: stdout %q, %v", i, a.Stdout, err)
			}
		})
	}
	group.Wait()
	if n := w.provider.Created(); n != 1 {
		t.Errorf("50 parallel first calls made %d containers, want 1", n)
	}
	if s, _ := state(t, m, v); s != sandbox.Running {
		t.Errorf("state %q, want running", s)
	}
}

func TestPoolIsUsedAndRefilled(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, func(o *sandbox.Options) { o.Pool = 2 })
	warm := func(n int) func() bool {
		return func() bool { _, have := m.Counts(); return have == n }
	}
	eventually(t, "two warm containers", warm(2))
	bash(t, m, memberView("ann", "c1"), "true")
	eventually(t, "three containers made", func() bool { return w.provider.Created() == 3 })
	eventually(t, "two warm containers again", warm(2))
	// A warm container that dies is replaced, and never handed out.
	all, _ := w.provider.List(t.Context())
	for _, c := range all {
		if running, _ := m.Counts(); running == 1 && c.Running {
			w.provider.Kill(c.Slot)
			break
		}
	}
	bash(t, m, memberView("ann", "c2"), "true")
	bash(t, m, memberView("ann", "c3"), "true")
}

func TestStopAndWakeKeepFiles(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	sub := m.Watch()
	defer sub.Close()
	for round := range 3 {
		if a := bash(t, m, v, fmt.Sprintf("echo %d >> log; cat log", round)); strings.Count(a.Stdout, "\n") != round+1 {
			t.Errorf("round %d: log is %q", round, a.Stdout)
		}
		bash(t, m, v, "sleep 1000 >/dev/null 2>&1 &")
		if err := m.Stop(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if s, reason := state(t, m, v); s != sandbox.Sleeping || reason != "stopped" {
			t.Errorf("round %d: state %q (%s), want sleeping (stopped)", round, s, reason)
		}
	}
	if err := m.Stop(t.Context(), v); err != nil {
		t.Errorf("stop of a sleeping machine: %v", err)
	}
	flushed := strings.Join(w.mounts.Flushed(), " ")
	for _, tree := range []string{"acme/members/ann", "acme/shared", "acme/machines/" + string(v.Machine)} {
		if !strings.Contains(flushed, tree) {
			t.Errorf("stop flushed %q, want %s too", flushed, tree)
		}
	}
	want := []sandbox.State{sandbox.Creating, sandbox.Running, sandbox.Sleeping}
	var got []sandbox.State
	for len(got) < 9 {
		events, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			got = append(got, e.State)
		}
	}
	for i, s := range got {
		if s != want[i%3] {
			t.Fatalf("states %v", got)
		}
	}
	data, err := os.ReadFile(filepath.Join(w.mounts.Tree(berth.MemberTree("acme", "ann")), "profy/c1/log"))
	if err != nil || string(data) != "0\n1\n2\n" {
		t.Errorf("log in the member's tree: %q, %v", data, err)
	}
}

func TestStopTellsWhatIsPending(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	bash(t, m, v, "true")
	w.mounts.SetFlushError(berth.ErrUnavailable)
	if err := m.Stop(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if s, reason := state(t, m, v); s != sandbox.Sleeping || !strings.Contains(reason, "acme/members/ann") {
		t.Errorf("state %q, reason %q, want sleeping and the trees that are pending", s, reason)
	}
}

func TestIdleStop(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, func(o *sandbox.Options) {
		o.Idle = func(v berth.View) time.Duration {
			if v.EndUser != "" {
				return 150 * time.Millisecond
			}
			return 0
		}
	})
	key, member := keyView("bob", "c1"), memberView("ann", "c2")
	bash(t, m, member, "true")
	start := time.Now()
	bash(t, m, key, "sleep 0.4; echo kept > f") // longer than the limit: a running call is not idle
	if took := time.Since(start); took < 400*time.Millisecond {
		t.Errorf("the call took %v", took)
	}
	eventually(t, "the key's machine sleeps", func() bool { s, _ := state(t, m, key); return s == sandbox.Sleeping })
	if _, reason := state(t, m, key); !strings.HasPrefix(reason, "no call for") {
		t.Errorf("reason %q", reason)
	}
	if s, _ := state(t, m, member); s != sandbox.Running {
		t.Errorf("the member's machine is %q, want running", s)
	}
	if a := bash(t, m, key, "cat f"); a.Stdout != "kept\n" {
		t.Errorf("after waking: %q, want the file's content", a.Stdout)
	}
}

func TestDestroy(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	key, member := keyView("bob", "c1"), memberView("ann", "c2")
	for _, v := range []berth.View{key, member} {
		bash(t, m, v, "echo x > f; echo y > ~/g")
		running := make(chan error, 1)
		go func() {
			_, err := call(t.Context(), m, v, "bash", args{"command": "sleep 1000"})
			running <- err
		}()
		if err := m.Destroy(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if err := <-running; !errors.Is(err, berth.ErrUnavailable) && !errors.Is(err, sandbox.ErrTerminated) {
			t.Errorf("call of a destroyed machine: %v", err)
		}
		if s, _ := state(t, m, v); s != sandbox.Terminated {
			t.Errorf("state %q, want terminated", s)
		}
		if _, err := call(t.Context(), m, v, "bash", args{"command": "true"}); !errors.Is(err, sandbox.ErrTerminated) {
			t.Errorf("call after destroy: %v, want ErrTerminated", err)
		}
		if err := m.Destroy(t.Context(), v); err != nil {
			t.Errorf("second destroy: %v", err)
		}
		if _, err := os.Stat(w.mounts.Tree(berth.MachineTree("acme", v.Machine))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("home after destroy: %v, want not exist", err)
		}
	}
	if _, err := os.Stat(w.mounts.Tree(berth.SessionTree("acme", "bob", "c1"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("session root after destroy: %v, want not exist", err)
	}
	if _, err := os.Stat(filepath.Join(w.mounts.Tree(berth.MemberTree("acme", "ann")), "profy/c2/f")); err != nil {
		t.Errorf("the member's file after destroy: %v", err)
	}
}

func TestContainerDiesBehindOurBack(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	bash(t, m, v, "echo kept > f")
	running := make(chan error, 1)
	go func() {
		_, err := call(t.Context(), m, v, "bash", args{"command": "touch begun; sleep 1000"})
		running <- err
	}()
	begun := filepath.Join(w.mounts.Tree(berth.MemberTree("acme", "ann")), "profy/c1/begun")
	eventually(t, "the command runs", func() bool { _, err := os.Stat(begun); return err == nil })
	all, _ := w.provider.List(t.Context())
	w.provider.Kill(all[0].Slot)
	if err := <-running; !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("running call: %v, want unavailable", err)
	}
	eventually(t, "the machine sleeps", func() bool { s, _ := state(t, m, v); return s == sandbox.Sleeping })
	if _, reason := state(t, m, v); reason != "its container ended: killed" {
		t.Errorf("reason %q", reason)
	}
	if a := bash(t, m, v, "cat f"); a.Stdout != "kept\n" {
		t.Errorf("after another start: %q", a.Stdout)
	}
}

func TestCancelKillsTheCommand(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	bash(t, m, v, "true")
	dir := filepath.Join(w.mounts.Tree(berth.MemberTree("acme", "ann")), "profy/c1")
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan error, 1)
	go func() {
		_, err := call(ctx, m, v, "bash", args{"command": "(setsid sh -c 'while :; do date > tick; sleep 0.01; done' &) ; sleep 1000"})
		running <- err
	}()
	tick := filepath.Join(dir, "tick")
	eventually(t, "the command ticks", func() bool { _, err := os.Stat(tick); return err == nil })
	cancel()
	if err := <-running; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled call: %v", err)
	}
	eventually(t, "the ticking ends", func() bool {
		os.Remove(tick)
		time.Sleep(100 * time.Millisecond)
		_, err := os.Stat(tick)
		return errors.Is(err, fs.ErrNotExist)
	})
	if s, _ := state(t, m, v); s != sandbox.Running {
		t.Errorf("state %q, want running", s)
	}
}

func TestBounds(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, func(o *sandbox.Options) { o.MaxRunning, o.MaxCalls = 1, 1 })
	v := memberView("ann", "c1")
	bash(t, m, v, "true")
	if _, err := call(t.Context(), m, memberView("ann", "c2"), "bash", args{"command": "true"}); !errors.Is(err, sandbox.ErrBusy) {
		t.Errorf("a second machine: %v, want ErrBusy", err)
	}
	// One call runs, three wait for it, two are refused.
	results := make(chan error, 6)
	for range 6 {
		go func() {
			_, err := call(t.Context(), m, v, "bash", args{"command": "until [ -e go ]; do sleep 0.01; done"})
			results <- err
		}()
	}
	for range 2 {
		if err := <-results; !errors.Is(err, sandbox.ErrBusy) {
			t.Errorf("a call too many: %v, want ErrBusy", err)
		}
	}
	release := filepath.Join(w.mounts.Tree(berth.MemberTree("acme", "ann")), "profy/c1/go")
	if err := os.WriteFile(release, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if err := <-results; err != nil {
			t.Errorf("a call that waited: %v", err)
		}
	}
}

func TestFailuresLeaveNothing(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, nil)
	v := memberView("ann", "c1")
	away := fmt.Errorf("the engine is away: %w", berth.ErrUnavailable)
	w.provider.SetDown(away)
	if _, err := call(t.Context(), m, v, "bash", args{"command": "true"}); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("without an engine: %v", err)
	}
	if s, reason := state(t, m, v); s != sandbox.Failed || !strings.Contains(reason, "the engine is away") {
		t.Errorf("state %q (%s), want failed with the reason", s, reason)
	}
	w.provider.SetDown(nil)
	w.records.SetDown(berth.ErrUnavailable)
	if _, err := call(t.Context(), m, v, "bash", args{"command": "true"}); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("without a store: %v", err)
	}
	if n, _ := m.Counts(); n != 0 {
		t.Errorf("%d machines run without a record", n)
	}
	w.records.SetDown(nil)
	if a := bash(t, m, v, "echo ok"); a.Stdout != "ok\n" {
		t.Errorf("afterwards: %q", a.Stdout)
	}
	// A container that cannot be removed is kept: no second one is started.
	w.provider.SetDown(away)
	if err := m.Stop(t.Context(), v); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("stop without an engine: %v", err)
	}
	made := w.provider.Created()
	if _, err := call(t.Context(), m, v, "bash", args{"command": "true"}); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("call after a half stop: %v", err)
	}
	w.provider.SetDown(nil)
	bash(t, m, v, "true")
	if n := w.provider.Created() - made; n != 1 {
		t.Errorf("%d containers made after the engine came back, want 1", n)
	}
}
