package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth"
	"berth/sandbox"
	"berth/sandbox/providertest"
)

// machineUID is the user of commands in a machine.
const machineUID = 1000

// bindMounts shows trees in slots by bind mounts, as mountd does: containers
// see them by propagation. Trees are plain directories.
type bindMounts struct {
	*providertest.Mounts
	slotsDir string
}

// MountView implements sandbox.Slots.
func (m *bindMounts) MountView(_ context.Context, slot berth.ID, v berth.View) error {
	mounted, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, p := range v.Places() {
		at := filepath.Join(m.slotsDir, string(slot), "home", "user", p.Path)
		if strings.Contains(string(mounted), " "+at+" ") {
			continue
		}
		for _, dir := range []string{m.Tree(p.Tree), at} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			if err := os.Chown(dir, machineUID, machineUID); err != nil {
				return err
			}
		}
		if err := syscall.Mount(m.Tree(p.Tree), at, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot bind %s: %w", at, err)
		}
	}
	return nil
}

// ReleaseSlot implements sandbox.Slots.
func (m *bindMounts) ReleaseSlot(ctx context.Context, slot berth.ID) error {
	home := filepath.Join(m.slotsDir, string(slot), "home", "user")
	for syscall.Unmount(home, syscall.MNT_DETACH) == nil {
	}
	return m.Mounts.ReleaseSlot(ctx, slot)
}

// world is an engine with slots, trees and records, for one test.
type world struct {
	provider *Provider
	mounts   *bindMounts
	records  *providertest.Records
	slotsDir string
}

// agentPath is the agent of all containers of this package's tests.
var agentPath string

// TestMain builds the agent, so that the image need not be made anew for each
// change of it.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "berth-agent-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	agentPath = filepath.Join(dir, "berth-agent")
	build := exec.Command("go", "build", "-o", agentPath, "berth/cmd/berth-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	code := 1
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot build berth-agent: %v\n%s", err, out)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// newWorld makes a world. What is left of its containers fails the test.
func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test needs root, for mounts and the docker engine")
	}
	image := os.Getenv("BERTH_TEST_IMAGE")
	if image == "" {
		image = "berth-machine:core"
	}
	// The tests depend on the agent's sources, and go test must know it.
	sources, err := filepath.Glob("../agent/*.go")
	must(t, err)
	for _, s := range sources {
		_, err := os.ReadFile(s)
		must(t, err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	slots := filepath.Join(dir, "slots")
	must(t, os.Mkdir(slots, 0o711))
	must(t, syscall.Mount(slots, slots, "", syscall.MS_BIND, ""))
	must(t, syscall.Mount("", slots, "", syscall.MS_SHARED, ""))
	t.Cleanup(func() { syscall.Unmount(slots, syscall.MNT_DETACH) })
	installation := "t" + string(berth.NewSlotID())
	p, err := New(Options{Image: image, Installation: installation, SlotsDir: slots, EtcDir: dir, AgentPath: agentPath})
	must(t, err)
	if _, err := p.Info(t.Context()); err != nil {
		t.Fatal(err) // says what to run when the image is missing
	}
	w := &world{
		provider: p, records: providertest.NewRecords(), slotsDir: slots,
		mounts: &bindMounts{providertest.NewMounts(filepath.Join(dir, "trees"), slots), slots},
	}
	t.Cleanup(func() {
		left, err := p.List(context.Background())
		if err != nil || len(left) > 0 {
			t.Errorf("containers left: %v, %v", left, err)
		}
		for _, c := range left {
			p.Destroy(context.Background(), c.Slot)
		}
		p.Close()
	})
	return w
}

// manager starts a manager on the world; it ends all machines after the test.
func (w *world) manager(t *testing.T, pool int) *sandbox.Manager {
	t.Helper()
	m := sandbox.New(sandbox.Options{
		Mounts: w.mounts, Provider: w.provider, Records: w.records, SlotsDir: w.slotsDir, Pool: pool,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	must(t, m.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.StopAll(ctx); err != nil {
			t.Error(err)
		}
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bashAnswer is the answer of bash.
type bashAnswer struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  int    `json:"exit_code"`
	Reason    string `json:"reason"`
	Truncated bool   `json:"truncated"`
}

// bash runs a command in the machine of a view.
func bash(t *testing.T, m *sandbox.Manager, v berth.View, command string, timeout time.Duration) bashAnswer {
	t.Helper()
	args, err := json.Marshal(map[string]any{"command": command, "timeout_ms": timeout.Milliseconds()})
	must(t, err)
	raw, err := m.Run(t.Context(), v, sandbox.Call{ID: "c1", Expert: berth.DefaultExpert, Tool: "bash", Args: args})
	if err != nil {
		t.Errorf("bash %q: %v", command, err) // not Fatal: it may be called from any goroutine
		return bashAnswer{}
	}
	var a bashAnswer
	must(t, json.Unmarshal(raw, &a))
	return a
}

func memberView(chat berth.ID) berth.View {
	return berth.View{Workspace: "acme", Machine: berth.NewMachineID(), Chat: chat, User: "ann", Experts: []berth.ID{berth.DefaultExpert}}
}

// eventually polls until ok or the deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within the deadline", what)
		}
	}
}

// TestTimes logs how long things take; the goals are loose, since tests run on
// busy machines: make bench measures them.
func TestTimes(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, 1)
	eventually(t, "a warm container", func() bool { _, warm := m.Counts(); return warm == 1 })
	v := memberView("c1")
	start := time.Now()
	bash(t, m, v, "true", time.Minute)
	first := time.Since(start)
	best := time.Hour
	for range 20 {
		start = time.Now()
		bash(t, m, v, "true", time.Minute)
		best = min(best, time.Since(start))
	}
	t.Logf("warm first call %v, running call %v at best", first, best)
	if first > 2*time.Second || best > 200*time.Millisecond {
		t.Errorf("warm first call %v, running call %v at best: want at most 2s and 200ms", first, best)
	}
}
