package mounts

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// idMap says which user and group on disk is shown as which.
type idMap struct {
	fromUID, toUID uint32
	fromGID, toGID uint32
}

// userNamespace returns a user namespace with the mapping, for mount_setattr.
func userNamespace(m idMap) (*os.File, error) {
	// A namespace is made with a process in it. This one is traced, so that it
	// stops before its first instruction; it is gone when the function returns.
	// Tracing is between threads.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Ptrace:      true,
		Pdeathsig:   syscall.SIGKILL,
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(m.fromUID), HostID: int(m.toUID), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(m.fromGID), HostID: int(m.toGID), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot make a user namespace: %w", err)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	cmd.Process.Kill()
	cmd.Wait() // says "killed"
	if err != nil {
		return nil, fmt.Errorf("cannot open a user namespace: %w", err)
	}
	return ns, nil
}
