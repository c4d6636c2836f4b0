package fusefs

import (
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/fusefs/index"
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

var storms = flag.Bool("storms", false, "measure what a storm in one tree does to another's times")

// twoTrees mounts two trees and returns them.
func twoTrees(t *testing.T) (r *rig, quiet, loud index.Ino) {
	t.Helper()
	r = newRig(t, func(o *Options) { o.WholeBucket = false })
	roots := make([]index.Ino, 2)
	for i, tree := range []berth.Tree{quietTree, loudTree} {
		must(t, r.AttachTree(t.Context(), tree))
		root, ok, err := r.db.Tree(tree.Prefix())
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		roots[i] = root
	}
	return r, roots[0], roots[1]
}

var quietTree, loudTree = berth.MemberTree("w", "quiet"), berth.MemberTree("w", "loud")

// TestTurns has many callers of one tree wait for the lock of the namespace, and
// then one of another tree, who has his turn among the first.
func TestTurns(t *testing.T) {
	r, quiet, loud := twoTrees(t)
	const callers = 64
	held, release := make(chan bool), make(chan bool)
	var order []index.Ino
	var group errgroup.Group
	group.Go(func() error {
		return r.db.Update(func(*index.Batch) error {
			close(held)
			<-release
			return nil
		})
	})
	<-held
	call := func(root index.Ino) {
		group.Go(func() error {
			return r.updateFor(root, func(t *txn) error {
				order = append(order, root) // under the lock
				return nil
			})
		})
	}
	for range callers {
		call(loud)
	}
	waits := func(root index.Ino) func() bool {
		return func() bool {
			turn := r.turns.of(root)
			if turn.TryLock() {
				turn.Unlock()
				return false
			}
			return true
		}
	}
	eventually(t, "they wait", waits(loud))
	call(quiet)
	eventually(t, "it waits", waits(quiet))
	close(release)
	must(t, group.Wait())
	if at := slices.Index(order, quiet); at < 0 || at > 2 {
		t.Errorf("the other tree's turn was after %d of %d callers", at, callers)
	}
}

// TestStorm measures small operations in one tree alone and during a storm of
// eight processes in another.
func TestStorm(t *testing.T) {
	if !*storms {
		t.Skip("measured with -storms, on a machine that does nothing else")
	}
	r, _, _ := twoTrees(t)
	measure := func() (p99, p50 float64) {
		t.Helper()
		out, err := exec.Command("python3", "-c", opsScript, r.path(quietTree.String())).Output()
		must(t, err)
		_, err = fmt.Sscan(string(out), &p99, &p50)
		must(t, err)
		return p99 / 1000, p50 / 1000
	}
	measure()
	alone, aloneMid := measure()
	w := startProcess(t, stormScript, r.path(loudTree.String()))
	if got := w.line(); got != "storm" {
		t.Fatal(got)
	}
	with, withMid := measure()
	w.in.Close()
	t.Logf("p99 %.0f us alone, %.0f us in the storm; p50 %.0f and %.0f us", alone, with, aloneMid, withMid)
	if with > 3*alone {
		t.Errorf("the storm makes the p99 %.1f times as long, want at most 3", with/alone)
	}
}
