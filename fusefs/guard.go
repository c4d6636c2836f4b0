package fusefs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Guard is a process beside one that serves a mount and uses it too, as who
// mounts its directories elsewhere does. When such a process is killed while one
// of its threads waits for an answer of its own, the thread cannot end before the
// answer, the descriptor that would fail it is not closed before the thread ends,
// and everybody who uses the mount hangs for ever. The guard is told by the
// kernel of the death and ends the mount's connection.
type Guard struct {
	in   io.WriteCloser
	done chan error
}

const guardReady = "ready\n"

// StartGuard starts the guard, which must run ServeGuard. It comes before Open,
// which is given the guard: the guard must not have the mount's descriptor.
func StartGuard(cmd *exec.Cmd) (*Guard, error) {
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("cannot start guard: %w", err)
	}
	// A group of its own: what kills the server's must not kill it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	g := &Guard{in, make(chan error, 1)}
	started := make(chan error, 1)
	go func() {
		// The signal comes when the thread that forked ends. This one does nothing
		// else, so that nothing can keep it.
		runtime.LockOSThread()
		err := cmd.Start()
		if err == nil {
			var line string
			if line, err = bufio.NewReader(out).ReadString('\n'); err == nil && line != guardReady {
				err = fmt.Errorf("it said %q", line)
			}
		}
		started <- err
		if cmd.Process != nil {
			g.done <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		in.Close()
		return nil, fmt.Errorf("cannot start guard: %w", err)
	}
	return g, nil
}

// Close ends the guard when there is nothing to guard any more.
func (g *Guard) Close() error {
	err := g.in.Close()
	if err := errors.Join(err, <-g.done); err != nil {
		return fmt.Errorf("cannot end guard: %w", err)
	}
	return nil
}

// watch tells the guard which mount it is. Nothing is asked of the mount.
func (g *Guard) watch(mountpoint string) error {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, mountpoint, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	if err == nil {
		_, err = fmt.Fprintln(g.in, st.Dev_minor)
	}
	if err != nil {
		return fmt.Errorf("cannot guard %s: %w", mountpoint, err)
	}
	return nil
}

// ServeGuard is the guard's process. It returns when Close was called, or when
// the server has died and its connection was ended.
func ServeGuard() error {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGTERM)
	signal.Ignore(os.Interrupt)
	connections, err := openConnections()
	if err != nil {
		return fmt.Errorf("cannot guard: %w", err)
	}
	defer unix.Close(connections)
	fmt.Print(guardReady)
	lines := make(chan string)
	go func() { // ends with the process
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	number := ""
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return nil
			}
			number = line
		case <-died:
			return abort(connections, number)
		}
	}
}

// openConnections opens the directory in which the kernel has its FUSE
// connections, wherever, if at all, it is mounted.
func openConnections() (int, error) {
	fs, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
}

func abort(connections int, number string) error {
	if _, err := strconv.ParseUint(number, 10, 32); err != nil {
		return nil // it died before it had a mount
	}
	fd, err := unix.Openat(connections, filepath.Join(number, "abort"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // it is over
	}
	if err != nil {
		return fmt.Errorf("cannot end FUSE connection %s: %w", number, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("1")); err != nil {
		return fmt.Errorf("cannot end FUSE connection %s: %w", number, err)
	}
	return nil
}
