package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"berth"
	"berth/sandbox"
)

func TestRestartTakesOverRunningMachines(t *testing.T) {
	w := newWorld(t)
	m := w.start(t, func(o *sandbox.Options) { o.Pool = 1 })
	alive, dead := memberView("ann", "c1"), memberView("ann", "c2")
	bash(t, m, alive, "sleep 1000 >/dev/null 2>&1 & echo $! > ~/pid")
	bash(t, m, dead, "echo kept > f")
	slots := map[berth.ID]bool{}
	all, _ := w.provider.List(t.Context())
	for _, c := range all {
		slots[c.Slot] = true
	}
	closeManager(t, m, false) // as when the gateway dies: machines go on
	rec, err := w.records.Get(t.Context(), "machines/"+string(dead.Machine))
	if err != nil {
		t.Fatal(err)
	}
	var value struct{ Slot berth.ID }
	if err := json.Unmarshal(rec.Value, &value); err != nil {
		t.Fatal(err)
	}
	w.provider.Kill(value.Slot)
	orphan, err := w.mounts.NewSlot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.provider.Create(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}

	m = w.manager(t, nil)
	if s, _ := state(t, m, alive); s != sandbox.Running {
		t.Errorf("the living machine is %q, want running", s)
	}
	if a := bash(t, m, alive, "kill -0 $(cat ~/pid) && echo alive"); a.Stdout != "alive\n" {
		t.Errorf("its background process: %+v", a)
	}
	s, reason := state(t, m, dead)
	if s != sandbox.Sleeping || !strings.Contains(reason, "killed") {
		t.Errorf("the dead machine is %q (%s), want sleeping and why", s, reason)
	}
	if all, _ := w.provider.List(t.Context()); len(all) != 1 {
		t.Errorf("containers after the restart: %v, want the living machine's alone", all)
	}
	if left, _ := w.mounts.Slots(t.Context()); len(left) != 1 {
		t.Errorf("slots after the restart: %v, want one", left)
	}
	if a := bash(t, m, dead, "cat f"); a.Stdout != "kept\n" {
		t.Errorf("the dead machine's file: %q", a.Stdout)
	}
}

// TestStartWhileTheStoreIsAway repairs what can be repaired without it.
func TestStartWhileTheStoreIsAway(t *testing.T) {
	w := newWorld(t)
	m := w.start(t, nil)
	v := memberView("ann", "c1")
	bash(t, m, v, "echo kept > f")
	closeManager(t, m, false)
	all, err := w.provider.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("containers: %v, %v", all, err)
	}
	w.provider.Kill(all[0].Slot)
	w.records.SetDown(berth.ErrUnavailable)
	m = w.manager(t, nil)
	if all, _ := w.provider.List(t.Context()); len(all) != 0 {
		t.Errorf("containers after start: %v", all)
	}
	if _, err := call(t.Context(), m, v, "bash", args{"command": "true"}); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("call without a store: %v, want unavailable", err)
	}
	w.records.SetDown(nil)
	if a := bash(t, m, v, "cat f"); a.Stdout != "kept\n" {
		t.Errorf("afterwards: %q", a.Stdout)
	}
}

func TestOtherInstallationsMachineIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	v := memberView("ann", "c1")
	value, err := json.Marshal(map[string]any{"view": v, "state": "running", "installation": "other", "slot": "s1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.records.Put(t.Context(), berth.Record{Key: "machines/" + string(v.Machine), Value: value}); err != nil {
		t.Fatal(err)
	}
	m := w.manager(t, nil)
	if _, err := call(t.Context(), m, v, "bash", args{"command": "true"}); err == nil || !strings.Contains(err.Error(), "another gateway") {
		t.Errorf("call: %v, want that it runs on another gateway", err)
	}
	if err := m.Destroy(t.Context(), v); err == nil {
		t.Error("destroyed a machine of another gateway")
	}
}

// TestTwoGatewaysOneMachine starts one machine through two gateways at once.
func TestTwoGatewaysOneMachine(t *testing.T) {
	w1, w2 := newWorld(t), newWorld(t)
	w2.provider.Installation, w2.records = "other", w1.records
	m1, m2 := w1.manager(t, nil), w2.manager(t, nil)
	v := memberView("ann", "c1")
	errs := make(chan error, 2)
	for _, m := range []*sandbox.Manager{m1, m2} {
		go func() {
			_, err := call(t.Context(), m, v, "bash", args{"command": "true"})
			errs <- err
		}()
	}
	<-errs
	<-errs
	n1, _ := m1.Counts()
	n2, _ := m2.Counts()
	if n1+n2 != 1 {
		t.Errorf("%d machines run after two gateways started one, want 1", n1+n2)
	}
}

func TestDestructionGoesOnAfterRestart(t *testing.T) {
	w := newWorld(t)
	v := keyView("bob", "c1")
	value, err := json.Marshal(map[string]any{"view": v, "state": "terminated", "installation": "memory", "remove": true})
	if err != nil {
		t.Fatal(err)
	}
	key := "machines/" + string(v.Machine)
	if _, err := w.records.Put(t.Context(), berth.Record{Key: key, Value: value}); err != nil {
		t.Fatal(err)
	}
	w.manager(t, nil)
	rec, err := w.records.Get(context.Background(), key)
	if err != nil || strings.Contains(string(rec.Value), "remove") {
		t.Errorf("record after start: %s, %v, want that nothing is left to remove", rec.Value, err)
	}
}
