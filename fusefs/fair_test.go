package fusefs

import (
	"fmt"
	"os/exec"
	"testing"

	"berth"
)

// stormScript makes, renames and removes files until its input ends.
const stormScript = `
import os, sys, threading
def storm(i):
    while True:
        a, b = f"{sys.argv[1]}/{i}", f"{sys.argv[1]}/{i}.moved"
        os.close(os.open(a, os.O_RDWR | os.O_CREAT))
        os.rename(a, b)
        os.unlink(b)
for i in range(8):
    if os.fork() == 0:
        storm(i)
print("storm", flush=True)
sys.stdin.read()
os.killpg(0, 9)
`

// opsScript does small operations, 3,000 rounds of them, and prints the 99th
// hundredth of their times in nanoseconds.
const opsScript = `
import os, sys, time
t, d = [], sys.argv[1]
for i in range(3000):
    begun = time.monotonic_ns()
    f = os.open(f"{d}/{i % 50}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(f, b"content")
    os.close(f)
    t.append(time.monotonic_ns() - begun)
    begun = time.monotonic_ns()
    os.rename(f"{d}/{i % 50}", f"{d}/moved")
    t.append(time.monotonic_ns() - begun)
    begun = time.monotonic_ns()
    os.unlink(f"{d}/moved")
    t.append(time.monotonic_ns() - begun)
t.sort()
print(t[len(t) * 99 // 100], t[len(t) // 2])
`

// TestFairness measures small operations in one tree alone and during a storm of
// eight processes in another.
func TestFairness(t *testing.T) {
	r := newRig(t, func(o *Options) { o.WholeBucket = false })
	quiet, loud := berth.MemberTree("w", "quiet"), berth.MemberTree("w", "loud")
	must(t, r.AttachTree(t.Context(), quiet))
	must(t, r.AttachTree(t.Context(), loud))
	measure := func() (p99, p50 float64) {
		t.Helper()
		out, err := exec.Command("python3", "-c", opsScript, r.path(quiet.String())).Output()
		must(t, err)
		_, err = fmt.Sscan(string(out), &p99, &p50)
		must(t, err)
		return p99 / 1000, p50 / 1000
	}
	measure()
	alone, aloneMid := measure()
	w := startProcess(t, stormScript, r.path(loud.String()))
	if got := w.line(); got != "storm" {
		t.Fatal(got)
	}
	with, withMid := measure()
	t.Logf("p99 %.0f us alone, %.0f us in the storm: %.1f times; p50 %.0f and %.0f us", alone, with, with/alone, aloneMid, withMid)
	w.in.Close()
}
