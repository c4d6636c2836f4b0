package agent

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// A process is one line of the process table.
type process struct {
	pid, parent int
	zombie      bool
}

// processes reads the process table. A process that ends meanwhile is left out.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	out := make([]process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// "pid (name) state ppid ...": the name may hold anything, so count from its end.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		parent, err := strconv.Atoi(string(fields[1]))
		if err != nil {
			continue
		}
		out = append(out, process{pid, parent, fields[0][0] == 'Z'})
	}
	return out
}

// descendants returns the living processes below root, without root itself and
// without those for which skip is true and what is below them.
func descendants(root int, skip func(pid int) bool) []int {
	children := map[int][]process{}
	for _, p := range processes() {
		children[p.parent] = append(children[p.parent], p)
	}
	var out []int
	queue := []int{root}
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		for _, p := range children[next] {
			if skip != nil && skip(p.pid) {
				continue
			}
			queue = append(queue, p.pid)
			if !p.zombie {
				out = append(out, p.pid)
			}
		}
	}
	return out
}

// killBelow ends every process below root until none is left or the deadline
// has passed, and says whether none is left. All are stopped before any is
// killed, so that a tree which forks faster than it is read cannot get away:
// a stopped process does not fork.
func killBelow(root int, skip func(pid int) bool, deadline time.Time) bool {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		stopped := map[int]bool{}
		for {
			fresh := 0
			for _, pid := range descendants(root, skip) {
				if !stopped[pid] {
					stopped[pid] = true
					fresh++
					syscall.Kill(pid, syscall.SIGSTOP)
				}
			}
			if fresh == 0 {
				break
			}
		}
		if len(stopped) == 0 {
			return true
		}
		for pid := range stopped {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause) // the dead must be reaped and their children handed over
	}
}

// oomKills returns how many processes of the machine the kernel has killed for
// want of memory, as far as the machine can see: 0 when it cannot.
func oomKills() int64 {
	for _, path := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(data) {
			if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == "oom_kill" {
				n, _ := strconv.ParseInt(string(f[1]), 10, 64)
				return n
			}
		}
	}
	return 0
}
