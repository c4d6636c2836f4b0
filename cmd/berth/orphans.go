package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startTime returns when a process started, in the kernel's ticks since boot
// together with the boot's id: with its pid that names a process for ever.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", fmt.Errorf("cannot look at process %d: %w", pid, err)
	}
	// The second field, the name in parentheses, may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const startTimeField = 22 - 3 // counted from the third field
	if len(fields) <= startTimeField {
		return "", fmt.Errorf("cannot look at process %d: /proc/%d/stat has %d fields", pid, pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("cannot look at process %d: %w", pid, os.ErrNotExist)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return fields[startTimeField] + "@" + strings.TrimSpace(string(boot)), nil
}

// endOrphans ends the processes that the pid files in runDir name and that
// still live: a killed supervisor left them. They have been told to stop by
// the kernel already; each gets within to do so. It returns their names.
func endOrphans(runDir string, within time.Duration) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(runDir, "*.pid"))
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(within)
	var ended []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return ended, fmt.Errorf("cannot read pid file: %w", err)
		}
		number, started, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
		pid, err := strconv.Atoi(number)
		if err == nil && pid > 1 && lives(pid, started) {
			if err := endOrphan(pid, started, deadline); err != nil {
				return ended, err
			}
			ended = append(ended, strings.TrimSuffix(filepath.Base(file), ".pid"))
		}
		if err := os.Remove(file); err != nil {
			return ended, fmt.Errorf("cannot remove pid file: %w", err)
		}
	}
	return ended, nil
}

// endOrphan asks the process to end and kills its group after the deadline.
func endOrphan(pid int, started string, deadline time.Time) error {
	// The descriptor names this very process: its number may be used again.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil || !lives(pid, started) {
		return nil // it has ended meanwhile
	}
	defer unix.Close(fd)
	unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
	if awaitExit(fd, time.Until(deadline)) {
		return nil
	}
	syscall.Kill(-pid, syscall.SIGKILL)
	if !awaitExit(fd, 10*time.Second) {
		return fmt.Errorf("cannot end process %d, which an earlier run left: it is stuck in the kernel", pid)
	}
	return nil
}

// awaitExit reports whether the process of a pidfd ends within the time.
func awaitExit(fd int, within time.Duration) bool {
	deadline := time.Now().Add(within)
	for {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if err != unix.EINTR {
			return n == 1
		}
	}
}

// lives reports whether the process that started then is still there.
func lives(pid int, started string) bool {
	now, err := startTime(pid)
	return err == nil && now == started
}
