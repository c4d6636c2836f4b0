package mounts

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth"
)

// newContainer starts a process that sees a slot's home as a container does.
func newContainer(t *testing.T, h *Host, id berth.ID) *helper {
	return newContainerOf(t, filepath.Join(h.opts.State, slotsName, string(id), "home"))
}

func newContainerOf(t *testing.T, home string) *helper {
	t.Helper()
	cmd := rerun(roleContainer, home)
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS
	return startHelper(t, cmd)
}

// serveContainer binds home, read-only and rslave as Docker does, and answers
// "ls DIR", "cat FILE", "put FILE" and others as the machines' user.
func serveContainer(home string) error {
	root, err := os.MkdirTemp("", "container-")
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, "") },
		func() error { return unix.Mount(home, root, "", unix.MS_BIND|unix.MS_REC, "") },
		func() error { return unix.Mount("", root, "", unix.MS_SLAVE|unix.MS_REC, "") },
		func() error { return unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "") },
		func() error { return syscall.Setgid(machineUID) },
		func() error { return syscall.Setuid(machineUID) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	var held *os.File
	defer func() { held.Close() }()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		verb, name, _ := strings.Cut(lines.Text(), " ")
		name = filepath.Join(root, name)
		var answer any
		err = nil
		switch verb {
		case "ls":
			answer, err = lsNames(name)
		case "cat":
			var data []byte
			data, err = os.ReadFile(name)
			answer = string(data)
		case "watch": // all that is listed until the name appears
			answer = watchDir(name)
		case "hold": // kept open to the end
			held, err = os.Open(name)
			answer = "held"
		case "hammer":
			var workspace, user string
			var rounds int
			fmt.Sscan(lines.Text()[len(verb):], &workspace, &user, &rounds)
			answer, err = "clean", hammer(root, workspace, user, rounds)
		case "put":
			answer, err = "written", os.WriteFile(name, []byte("from the machine"), 0o644)
		}
		if err != nil {
			answer = syscallName(err)
		}
		fmt.Println(answer)
	}
	return nil
}

// watchDir lists the directory of a file until the file is in it, and returns the
// different answers in their order.
func watchDir(file string) []string {
	var seen []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		names, err := lsNames(filepath.Dir(file))
		if err != nil {
			names = syscallName(err)
		}
		if len(seen) == 0 || seen[len(seen)-1] != names {
			seen = append(seen, names)
		}
		if strings.Contains(names, "["+filepath.Base(file)) { // a stat may still be answered from a cache
			break
		}
	}
	return seen
}

func lsNames(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return "[" + strings.Join(names, " ") + "]", err
}

func syscallName(err error) string {
	for e := err; e != nil; {
		if errno, ok := e.(syscall.Errno); ok {
			return unix.ErrnoName(errno)
		}
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			break
		}
		e = u.Unwrap()
	}
	return err.Error()
}
