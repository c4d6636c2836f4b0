package mounts

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth"
	"berth/fusefs"
)

// The test binary starts itself again in other roles.
const (
	roleEnv       = "BERTH_TEST_ROLE"
	roleTests     = "tests"     // in a mount namespace of its own
	roleClaims    = "claims"    // mounts and releases views until it is killed
	roleContainer = "container" // sees a slot's home as a container does
	roleDial      = "dial"      // asks a server once
	roleFUSE      = "fuse"      // as roleHost, with the real file system
	roleGuard     = "guard"     // watches over a host with the real file system
	roleHost      = "host"      // holds the mounts of a state directory until it is killed
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleEnv) {
	case roleTests:
		os.Exit(runTests(m))
	case roleContainer:
		err = serveContainer(os.Args[1])
	case roleDial:
		if dialOnce(os.Args[1]) != nil {
			os.Exit(1)
		}
	case roleFUSE:
		err = serveFUSEHost(os.Args[1])
	case roleGuard:
		err = fusefs.ServeGuard()
	case roleClaims:
		err = serveClaims(os.Args[1])
	case roleHost:
		err = serveHost(os.Args[1])
	default:
		// What the tests mount must not be seen outside, nor stay if they crash.
		cmd := rerun(roleTests, os.Args[1:]...)
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS
		err = cmd.Run()
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			os.Exit(max(exit.ExitCode(), 1))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot run tests (they need root):", err)
		os.Exit(1)
	}
}

func rerun(role string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// runTests runs the tests in a directory of their own and fails if a mount is
// left there.
func runTests(m *testing.M) int {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		fmt.Fprintln(os.Stderr, "cannot make mounts private:", err)
		return 1
	}
	base, err := os.MkdirTemp("", "berth-mounts-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Chmod(base, 0o711) // the machines' user comes through
	os.Setenv("TMPDIR", base)
	code := m.Run()
	left, err := mountsBelow(base)
	if err != nil || len(left) > 0 {
		fmt.Fprintln(os.Stderr, "mounts were left over:", left, err)
		return 1
	}
	if left := leftGoroutines(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "goroutines were left over:\n%s\n", strings.Join(left, "\n\n"))
		return 1
	}
	os.RemoveAll(base)
	return code
}

// leftGoroutines returns the stacks of goroutines that our code started, if they
// do not end soon.
func leftGoroutines() []string {
	var left []string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		left = nil
		for stack := range strings.SplitSeq(string(buf), "\n\n") {
			if strings.Contains(stack, "created by berth/") || strings.Contains(stack, "berth/mounts.(") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			break
		}
	}
	return left
}

// dirTrees is a file system of plain directories below root.
type dirTrees struct{ root string }

func (d dirTrees) AttachTree(_ context.Context, t berth.Tree, points ...string) error {
	for _, p := range append(points, "") {
		if err := os.MkdirAll(filepath.Join(d.root, t.String(), p), 0o755); err != nil {
			return err
		}
	}
	return os.Chown(filepath.Join(d.root, t.String()), machineUID, machineUID)
}

// RemoveTree removes the tree's files; what is mounted on stays.
func (d dirTrees) RemoveTree(_ context.Context, t berth.Tree) error {
	err := filepath.WalkDir(filepath.Join(d.root, t.String()), func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return os.Remove(name)
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (dirTrees) Flush(context.Context, string) error { return nil }

const (
	gatewayUID = 4711
	machineUID = 1000
)

func testOptions(state string) Options {
	return Options{
		State: state, GatewayUID: gatewayUID, GatewayGID: gatewayUID,
		MachineUID: machineUID, MachineGID: machineUID, Logger: slog.New(slog.DiscardHandler),
	}
}

// startHost runs a Host on a tmpfs in place of the bucket's file system.
func startHost(o Options) (*Host, error) {
	h, err := Prepare(o)
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", h.FSDir(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,mode=755"); err != nil {
		return nil, err
	}
	return h, h.Start(context.Background(), dirTrees{h.FSDir()})
}

// newHost is startHost with clean-up.
func newHost(t *testing.T, o Options) *Host {
	t.Helper()
	h, err := startHost(o)
	if err != nil {
		t.Fatalf("start host: %v", err)
	}
	t.Cleanup(func() { closeHost(t, h) })
	return h
}

func closeHost(t *testing.T, h *Host) {
	t.Helper()
	if err := h.Unmount(); err != nil {
		t.Errorf("Unmount: %v", err)
	}
	h.Close()
	if err := unix.Unmount(h.FSDir(), unix.MNT_DETACH); err != nil {
		t.Errorf("unmount fs: %v", err)
	}
	if left, err := mountsBelow(h.opts.State); err != nil || len(left) > 0 {
		t.Errorf("mounts left after Unmount: %v, %v", left, err)
	}
}

// serveHost holds the mounts of a state directory until it is killed, with a
// claimed slot whose id it prints.
func serveHost(state string) error {
	h, err := startHost(testOptions(state))
	if err != nil {
		return err
	}
	for line := bufio.NewScanner(os.Stdin); line.Scan(); {
		id, err := h.NewSlot(context.Background())
		if err == nil && line.Text() == "claim" {
			err = h.MountView(context.Background(), id, memberView)
		}
		fmt.Println(id, err)
	}
	return nil
}

// A helper process answers one line for each line it is sent.
type helper struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func startHelper(t *testing.T, cmd *exec.Cmd) *helper {
	t.Helper()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &helper{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(h.kill)
	return h
}

func (h *helper) ask(format string, args ...any) string {
	h.t.Helper()
	h.send(format, args...)
	return h.answer()
}

func (h *helper) send(format string, args ...any) { fmt.Fprintf(h.in, format+"\n", args...) }

func (h *helper) answer() string {
	h.t.Helper()
	answer, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("helper process: %v", err)
	}
	return strings.TrimSpace(answer)
}

func (h *helper) kill() {
	h.cmd.Process.Kill()
	h.cmd.Wait()
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
