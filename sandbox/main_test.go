package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"berth"
	"berth/sandbox"
	"berth/sandbox/providertest"
)

// TestMain fails the run when goroutines of this package are left.
func TestMain(m *testing.M) {
	providertest.RunSupervisor()
	code := m.Run()
	if code == 0 {
		if left := leftGoroutines(); left != "" {
			fmt.Fprintln(os.Stderr, "goroutines left:\n"+left)
			code = 1
		}
	}
	os.Exit(code)
}

// leftGoroutines waits for goroutines of the packages under test to end and
// returns the stacks of those that do not.
func leftGoroutines() string {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		var left []string
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "berth/sandbox") && !strings.Contains(g, "leftGoroutines") {
				left = append(left, g)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
	}
}

// world is all that a manager works with, in memory.
type world struct {
	mounts   *providertest.Mounts
	provider *providertest.Memory
	records  *providertest.Records
	slotsDir string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	slots := filepath.Join(dir, "slots")
	if err := os.Mkdir(slots, 0o700); err != nil {
		t.Fatal(err)
	}
	w := &world{
		mounts: providertest.NewMounts(filepath.Join(dir, "trees"), slots), provider: providertest.NewMemory(slots),
		records: providertest.NewRecords(), slotsDir: slots,
	}
	t.Cleanup(func() {
		left, _ := w.provider.List(context.Background())
		for _, c := range left {
			t.Errorf("container left on slot %s", c.Slot)
			w.provider.Destroy(context.Background(), c.Slot)
		}
		if slots, _ := w.mounts.Slots(context.Background()); len(slots) > 0 {
			t.Errorf("slots left: %v", slots)
		}
	})
	return w
}

// manager starts a manager; after the test it stops all machines and closes it.
func (w *world) manager(t *testing.T, change func(*sandbox.Options)) *sandbox.Manager {
	t.Helper()
	m := w.start(t, change)
	t.Cleanup(func() { closeManager(t, m, true) })
	return m
}

// start starts a manager that the test closes itself.
func (w *world) start(t *testing.T, change func(*sandbox.Options)) *sandbox.Manager {
	t.Helper()
	o := sandbox.Options{
		Mounts: w.mounts, Provider: w.provider, Records: w.records, SlotsDir: w.slotsDir, FlushTimeout: 5 * time.Second,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&o)
	}
	m := sandbox.New(o)
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

func closeManager(t *testing.T, m *sandbox.Manager, stop bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if stop {
		if err := m.StopAll(ctx); err != nil {
			t.Errorf("stop all: %v", err)
		}
	}
	if err := m.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

func memberView(user, chat berth.ID) berth.View {
	return berth.View{Workspace: "acme", Machine: berth.NewMachineID(), Chat: chat, User: user, Experts: []berth.ID{"profy"}}
}

func keyView(endUser, chat berth.ID) berth.View {
	return berth.View{Workspace: "acme", Machine: berth.NewMachineID(), Chat: chat, EndUser: endUser, Experts: []berth.ID{"profy"}}
}

// answer holds the fields of all tools' answers.
type answer struct {
	Stdout       string  `json:"stdout"`
	Stderr       string  `json:"stderr"`
	StdoutBase64 string  `json:"stdout_base64"`
	StdoutBytes  int64   `json:"stdout_bytes"`
	ExitCode     int     `json:"exit_code"`
	Reason       string  `json:"reason"`
	Truncated    bool    `json:"truncated"`
	Content      *string `json:"content"`
	Base64       *string `json:"content_base64"`
	Size         int64   `json:"size"`
	Entries      []struct {
		Name       string `json:"name"`
		NameBase64 string `json:"name_base64"`
		Kind       string `json:"kind"`
		Size       int64  `json:"size"`
	} `json:"entries"`
}

// call runs a tool.
func call(ctx context.Context, m *sandbox.Manager, v berth.View, tool string, args any) (answer, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return answer{}, err
	}
	out, err := m.Run(ctx, v, sandbox.Call{ID: "call1", Expert: "profy", Tool: tool, Args: raw})
	if err != nil {
		return answer{}, err
	}
	var a answer
	return a, json.Unmarshal(out, &a)
}

type args map[string]any

// bash runs a command that must be answered.
func bash(t *testing.T, m *sandbox.Manager, v berth.View, command string) answer {
	t.Helper()
	a, err := call(t.Context(), m, v, "bash", args{"command": command})
	if err != nil {
		t.Fatalf("bash %q: %v", command, err)
	}
	return a
}

// state returns a machine's state and reason.
func state(t *testing.T, m *sandbox.Manager, v berth.View) (sandbox.State, string) {
	t.Helper()
	d, err := m.Machine(t.Context(), v.Machine)
	if err != nil {
		t.Fatal(err)
	}
	return d.State, d.Reason
}

// eventually polls until ok or the deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within the deadline", what)
		}
	}
}
