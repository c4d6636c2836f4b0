package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// testChildEnv makes this test binary, started again, behave as a child.
const testChildEnv = "BERTH_TEST_CHILD"

// childOrders is the configuration of the test's children.
type childOrders struct {
	Name     string `json:"name"`
	Record   string `json:"record"`    // file that gets a line at each start and stop
	Fail     string `json:"fail"`      // end before ready, with this on stderr
	Mute     bool   `json:"mute"`      // never be ready
	Deaf     bool   `json:"deaf"`      // ignore SIGTERM
	ExitCode int    `json:"exit_code"` // after SIGTERM
}

// TestBeChild is what a child runs. In an ordinary run it does nothing.
func TestBeChild(t *testing.T) {
	if os.Getenv(testChildEnv) == "" {
		return
	}
	os.Exit(beChild())
}

func beChild() int {
	orders, err := readConfig[childOrders]()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	if orders.Fail != "" {
		fmt.Fprintln(os.Stderr, orders.Fail)
		return 4
	}
	ctx, stop := childContext(context.Background())
	defer stop()
	if orders.Deaf {
		ctx = context.Background()
	}
	childLogger().Info("child serves")
	appendLine(orders.Record, "start "+orders.Name)
	groups, _ := os.Getgroups()
	status, _ := os.ReadFile("/proc/self/status")
	stuck := strings.Contains(string(status), "NoNewPrivs:\t1\n")
	if !orders.Mute {
		err = announceReady(map[string]any{"ready": true, "pid": os.Getpid(), "uid": os.Getuid(), "groups": len(groups), "stuck": stuck})
	}
	if err != nil {
		return 5
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute): // a test that lost its child
		return 6
	}
	appendLine(orders.Record, "stop "+orders.Name)
	return orders.ExitCode
}

func appendLine(name, line string) {
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

// newTestSupervisor returns one whose children are this test binary.
func newTestSupervisor(t *testing.T) *supervisor {
	t.Helper()
	dir := t.TempDir()
	return newSupervisor(supervisorOptions{
		exe:        "/proc/self/exe",
		args:       func(string) []string { return []string{"-test.run=^TestBeChild$"} },
		env:        append(os.Environ(), testChildEnv+"=1"),
		runDir:     dir,
		logDir:     dir,
		logger:     slog.New(slog.DiscardHandler),
		backoffMin: 10 * time.Millisecond, backoffMax: 100 * time.Millisecond, steady: time.Minute,
	})
}

// readyPIDs collects the pid of each start.
type readyPIDs chan int

func (c readyPIDs) take(line []byte) error {
	var doc struct{ PID int }
	err := json.Unmarshal(line, &doc)
	c <- doc.PID
	return err
}

func (c readyPIDs) next(t *testing.T) int {
	t.Helper()
	select {
	case pid := <-c:
		return pid
	case <-time.After(20 * time.Second):
		t.Fatal("the child was not started in 20 s")
		return 0
	}
}

func testChild(orders childOrders, ready func([]byte) error) child {
	return child{
		name:        orders.Name,
		config:      func() (any, error) { return orders, nil },
		ready:       ready,
		startWithin: 20 * time.Second,
		stopWithin:  20 * time.Second,
	}
}

func TestSupervisorStopsInReverseOrder(t *testing.T) {
	s := newTestSupervisor(t)
	record := filepath.Join(t.TempDir(), "record")
	for _, name := range []string{"one", "two", "three"} {
		if err := s.Start(t.Context(), testChild(childOrders{Name: name, Record: record}, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatalf("stop: %v", err)
	}
	data, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	want := "start one\nstart two\nstart three\nstop three\nstop two\nstop one\n"
	if got := string(data); got != want {
		t.Errorf("got order\n%swant\n%s", got, want)
	}
	if left, _ := filepath.Glob(filepath.Join(s.opts.runDir, "*.pid")); len(left) > 0 {
		t.Errorf("pid files are left: %v", left)
	}
}

func TestSupervisorRestartsWhatDies(t *testing.T) {
	s := newTestSupervisor(t)
	one, two := make(readyPIDs, 10), make(readyPIDs, 10)
	for name, pids := range map[string]readyPIDs{"one": one, "two": two} {
		if err := s.Start(t.Context(), testChild(childOrders{Name: name}, pids.take)); err != nil {
			t.Fatal(err)
		}
	}
	first, other := one.next(t), two.next(t)
	for range 3 {
		syscall.Kill(first, syscall.SIGKILL)
		again := one.next(t)
		if again == first {
			t.Fatalf("the new process has the pid of the old one, %d", first)
		}
		first = again
	}
	if err := syscall.Kill(other, 0); err != nil {
		t.Errorf("the other child: %v", err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	for _, pid := range []int{first, other} {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d is left", pid)
		}
	}
}

func TestSupervisorReportsFailedStarts(t *testing.T) {
	tests := []struct {
		name   string
		orders childOrders
		within time.Duration
		want   string
	}{
		{"ends with a message", childOrders{Fail: "berth: cannot open the thing: it is red"}, time.Minute, "it is red"},
		{"exit status", childOrders{Fail: "x"}, time.Minute, "exit status 4"},
		{"never ready", childOrders{Mute: true}, time.Second, "not ready within 1s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestSupervisor(t)
			tt.orders.Name = "one"
			c := testChild(tt.orders, nil)
			c.startWithin = tt.within
			err := s.Start(t.Context(), c)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "cannot start one: ") {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
}

func TestSupervisorKillsTheDeaf(t *testing.T) {
	s := newTestSupervisor(t)
	pids := make(readyPIDs, 1)
	c := testChild(childOrders{Name: "deaf", Deaf: true}, pids.take)
	c.stopWithin = 200 * time.Millisecond
	if err := s.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("got %v, want an error that says it was killed", err)
	}
	if err := syscall.Kill(pids.next(t), 0); err == nil {
		t.Error("the child is left")
	}
}

func TestSupervisorReportsUncleanStop(t *testing.T) {
	s := newTestSupervisor(t)
	if err := s.Start(t.Context(), testChild(childOrders{Name: "one", ExitCode: 7}, nil)); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("got %v, want an error with the exit status", err)
	}
}

func TestSupervisorDropsRights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("this test needs root")
	}
	s := newTestSupervisor(t)
	var got struct {
		UID, Groups int
		Stuck       bool // cannot gain rights
	}
	c := testChild(childOrders{Name: "one"}, func(line []byte) error { return json.Unmarshal(line, &got) })
	c.credential = func() *syscall.Credential { return gatewayCredential(64180, 64180) }
	if err := s.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got.UID != 64180 || got.Groups != 0 || !got.Stuck {
		t.Errorf("got %+v, want uid 64180 without supplementary groups or ways to gain rights", got)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// testOrphanEnv makes this test binary a supervisor of one child in the
// directory it names, which then waits to be killed.
const testOrphanEnv = "BERTH_TEST_ORPHANS"

func TestBeSupervisor(t *testing.T) {
	dir := os.Getenv(testOrphanEnv)
	if dir == "" {
		return
	}
	os.Unsetenv(testOrphanEnv)
	s := newTestSupervisor(t)
	s.opts.runDir, s.opts.logDir = dir, dir
	for _, c := range []childOrders{
		{Name: "polite", Record: filepath.Join(dir, "record")},
		{Name: "deaf", Deaf: true},
	} {
		if err := s.Start(t.Context(), testChild(c, nil)); err != nil {
			t.Fatal(err)
		}
	}
	appendLine(filepath.Join(dir, "up"), "ready")
	time.Sleep(time.Minute) // until it is killed
	t.Fatal("nobody killed this process")
}

func TestEndOrphans(t *testing.T) {
	dir := t.TempDir()
	up := exec.Command("/proc/self/exe", "-test.run=^TestBeSupervisor$")
	up.Env = append(os.Environ(), testOrphanEnv+"="+dir)
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the supervisor", func() bool { _, err := os.Stat(filepath.Join(dir, "up")); return err == nil })
	up.Process.Kill()
	up.Wait()

	// The kernel tells the children that their supervisor is gone.
	await(t, "the polite child's end", func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "record"))
		return strings.Contains(string(data), "stop polite")
	})

	// A pid that belongs to another process by now is left alone.
	bystander := exec.Command("sleep", "60")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer bystander.Wait()
	defer bystander.Process.Kill()
	reused := fmt.Sprintf("%d 12345@another-boot\n", bystander.Process.Pid)
	if err := os.WriteFile(filepath.Join(dir, "reused.pid"), []byte(reused), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "torn.pid"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	ended, err := endOrphans(dir, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(ended) == 0 || ended[0] != "deaf" {
		t.Errorf("got ended %v, want the deaf child in front", ended)
	}
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the bystander was ended: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.pid")); len(left) > 0 {
		t.Errorf("pid files are left: %v", left)
	}
	if again, err := endOrphans(dir, time.Second); err != nil || len(again) > 0 {
		t.Errorf("second call: got %v, %v; want nothing", again, err)
	}
}

// await polls until ok, for at most 20 s.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited 20 s for %s", what)
}

func TestSupervisorStopGivesUpAStart(t *testing.T) {
	s := newTestSupervisor(t)
	pids := make(readyPIDs, 10)
	var starts atomic.Int32
	c := testChild(childOrders{Name: "one"}, pids.take)
	c.config = func() (any, error) {
		if starts.Add(1) > 1 {
			return nil, errors.New("no configuration any more")
		}
		return childOrders{Name: "one"}, nil
	}
	if err := s.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(pids.next(t), syscall.SIGKILL)
	await(t, "another start", func() bool { return starts.Load() > 1 })
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
}
