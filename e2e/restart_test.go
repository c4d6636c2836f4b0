package e2e

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var machines = flag.Int("machines", 3, "how many machines run while TestMountdRestarts ends mountd")

// prober is what each machine runs: it lists the disk and writes to it all the
// time, and notes in /tmp when what it meets changes. EMPTY-WRITABLE must never
// be met: a tool would take it for the truth.
const prober = `
cat > /tmp/prober.py <<'END'
import errno, os, time
disk, last = "/home/user/workspace", None
while not os.path.exists("/tmp/stop"):
    try:
        names = os.listdir(disk)
        seen = "files" if "keep" in names else "EMPTY"
    except OSError as e:
        seen = errno.errorcode[e.errno]
    try:
        with open(disk + "/probe", "w") as f: f.write("x")
        seen += "-WRITABLE"
    except OSError as e:
        seen += "-" + errno.errorcode[e.errno]
    if seen != last:
        with open("/tmp/seen", "a") as log: print(time.monotonic(), seen, file=log)
        last = seen
    time.sleep(0.01)
END
echo kept > /home/user/workspace/keep
(setsid python3 /tmp/prober.py >/tmp/prober.err 2>&1 &)
for i in $(seq 100); do test -s /tmp/seen && break; sleep 0.05; done
cat /tmp/seen`

// TestMountdRestarts kills and restarts mountd under running machines. Each sees
// its files by path again within 3 s, in the same container, and never an empty
// directory that it can write to.
func TestMountdRestarts(t *testing.T) {
	const limit = 3.0 // seconds
	b := start(t)
	chat := func(i int) string { return fmt.Sprint("c", i) }
	var begun sync.WaitGroup
	for i := range *machines {
		begun.Go(func() {
			b.call(t, b.Member, "PUT", "/v1/chats/"+chat(i), map[string]any{})
			if got := b.bash(t, b.Member, chat(i), prober); !strings.Contains(got.Stdout, "files-WRITABLE") {
				t.Errorf("machine %d begins with %q, %q", i, got.Stdout, got.Stderr)
			}
		})
	}
	begun.Wait()
	containers := make(map[string]bool)
	for _, id := range b.containers(t) {
		containers[id] = true
	}
	rounds := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM}
	for round, signal := range rounds {
		pid := b.children(t)["mountd"]
		syscall.Kill(pid, signal)
		eventually(t, "mountd runs again", 30*time.Second, func() bool {
			again := b.children(t)["mountd"]
			return again != 0 && again != pid
		})
		for i := range *machines {
			var log string
			eventually(t, fmt.Sprintf("machine %d has its files after %v", i, signal), 30*time.Second, func() bool {
				a, err := b.try(t, b.Member, "POST", "/v1/chats/"+chat(i)+"/tools/bash", map[string]any{"command": "cat /tmp/seen"})
				if err != nil || a.Status != 200 {
					return false
				}
				var r bashResult
				a.want(t, 200, &r)
				log = r.Stdout
				return strings.Count(log, "files-WRITABLE") > round+1
			})
			checkSeen(t, fmt.Sprintf("machine %d", i), log, limit)
		}
	}
	for _, id := range b.containers(t) {
		delete(containers, id)
	}
	if len(containers) > 0 {
		t.Errorf("containers were replaced: %v", containers)
	}
	b.flush(t)
	content, _ := b.bucket(t).object(t, fmt.Sprintf("%s/members/%s/keep", b.Workspace, b.User))
	equal(t, "object keep", content, "kept\n")
}

// checkSeen checks a prober's log: what it met and for how long.
func checkSeen(t *testing.T, who, log string, limit float64) {
	t.Helper()
	lost, longest := -1.0, 0.0
	for line := range strings.Lines(log) {
		var at float64
		var seen string
		fmt.Sscan(line, &at, &seen)
		switch {
		case seen == "EMPTY-WRITABLE":
			t.Errorf("%s met an empty directory that it could write to:\n%s", who, log)
		case seen != "files-WRITABLE" && lost < 0:
			lost = at
		case seen == "files-WRITABLE" && lost >= 0:
			longest = max(longest, at-lost)
			lost = -1
		}
	}
	if longest > limit {
		t.Errorf("%s was without its files for %.1f s, want %.1f s at most:\n%s", who, longest, limit, log)
	}
	t.Logf("%s was without its files for %.2f s at most", who, longest)
}
