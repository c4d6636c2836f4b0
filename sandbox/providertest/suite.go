package providertest

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth"
	"berth/sandbox"
)

// A Harness is a provider to be tested, with slots for its containers.
type Harness struct {
	Provider sandbox.Provider
	Slots    sandbox.Slots
	SlotsDir string
	Kill     func(sandbox.Container) // ends a container behind the provider's back
}

// Suite holds a provider to the contract of sandbox.Provider.
func Suite(t *testing.T, open func(t *testing.T) Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"Info", testInfo}, {"Life", testLife}, {"Death", testDeath}, {"Refusals", testRefusals}, {"AgentDials", testAgentDials},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

func testInfo(t *testing.T, h Harness) {
	info, err := h.Provider.Info(t.Context())
	if err != nil || info.Image == "" {
		t.Errorf("info: %+v, %v", info, err)
	}
	if _, err := berth.ParseID("installation", info.Installation); err != nil {
		t.Error(err)
	}
}

// create makes a container on a new slot; both go after the test.
func create(t *testing.T, h Harness) sandbox.Container {
	t.Helper()
	slot, err := h.Slots.NewSlot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		if err := errors.Join(h.Provider.Destroy(ctx, slot), h.Slots.ReleaseSlot(ctx, slot)); err != nil {
			t.Error(err)
		}
	})
	c, err := h.Provider.Create(t.Context(), slot)
	if err != nil {
		t.Fatal(err)
	}
	if c.Slot != slot || !c.Running || c.InitPID <= 0 || c.ID == "" || c.Image == "" {
		t.Errorf("create: %+v", c)
	}
	return c
}

// find returns a slot's container in the list.
func find(t *testing.T, h Harness, slot berth.ID) (sandbox.Container, bool) {
	t.Helper()
	all, err := h.Provider.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(c sandbox.Container) bool { return c.Slot == slot })
	if i < 0 {
		return sandbox.Container{}, false
	}
	return all[i], true
}

func testLife(t *testing.T, h Harness) {
	c := create(t, h)
	if got, ok := find(t, h, c.Slot); !ok || got != c {
		t.Errorf("list: %+v, %v, want %+v", got, ok, c)
	}
	if s, err := h.Provider.Stats(t.Context(), c.Slot); err != nil || s.MemoryBytes <= 0 || s.MemoryLimit <= 0 || s.Processes <= 0 {
		t.Errorf("stats: %+v, %v", s, err)
	}
	if _, err := h.Provider.Create(t.Context(), c.Slot); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second container of a slot: %v, want exist", err)
	}
	if got, ok := find(t, h, c.Slot); !ok || got != c {
		t.Errorf("after a second create: %+v, %v, want %+v", got, ok, c)
	}
	if err := h.Provider.Destroy(t.Context(), c.Slot); err != nil {
		t.Fatal(err)
	}
	if got, ok := find(t, h, c.Slot); ok {
		t.Errorf("after destroy: %+v", got)
	}
	if c.InitPID != os.Getpid() && syscall.Kill(c.InitPID, 0) != syscall.ESRCH {
		t.Errorf("after destroy: process %d lives", c.InitPID)
	}
	if err := h.Provider.Destroy(t.Context(), c.Slot); err != nil {
		t.Errorf("second destroy: %v", err)
	}
}

func testDeath(t *testing.T, h Harness) {
	c := create(t, h)
	h.Kill(c)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got, ok := find(t, h, c.Slot)
		if ok && !got.Running && got.InitPID == 0 && got.Exit != "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after its death: %+v, %v, want one that has ended, and how", got, ok)
		}
	}
}

func testRefusals(t *testing.T, h Harness) {
	for _, bad := range []berth.ID{"", "..", "a/b", ".x", "a b", berth.ID(strings.Repeat("x", 129))} {
		if _, err := h.Provider.Create(t.Context(), bad); !errors.Is(err, fs.ErrInvalid) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("create on %q: %v, want invalid", bad, err)
		}
	}
	if _, err := h.Provider.Create(t.Context(), "snone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("create on a slot that does not exist: %v, want not exist", err)
	}
	if _, err := h.Provider.Stats(t.Context(), "snone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stats of a slot that does not exist: %v, want not exist", err)
	}
	if err := h.Provider.Destroy(t.Context(), "snone"); err != nil {
		t.Errorf("destroy on a slot that does not exist: %v", err)
	}
}

// testAgentDials checks that the container's init dials the slot's socket.
func testAgentDials(t *testing.T, h Harness) {
	c := create(t, h)
	dir, err := os.Open(filepath.Join(h.SlotsDir, string(c.Slot), "ctl"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	// Through a descriptor: the path may be longer than an address of a socket.
	path := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), "agent.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(os.Chmod(path, 0o666), l.SetDeadline(time.Now().Add(10*time.Second))); err != nil {
		t.Fatal(err)
	}
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatalf("the agent did not dial: %v", err)
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil || int(cred.Pid) != c.InitPID {
			t.Errorf("process %v dialled, %v, want %d", cred, err, c.InitPID)
		}
	})
}
