package fusefs

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/fusefs/object"
)

var cuts = flag.Int("cuts", 2, "how many power cuts TestPowerCut makes")

// TestPowerCut lets a server run with its state on ext4 in an image file that
// lies on XFS. A reflink copy of the image at a random moment is a power cut: it
// has what the kernel had written to the disk by then. The next server runs on
// the copy, with the bucket as it is. What was synced is there, what took the
// place of other content is whole or that content is still there, and in the end
// the bucket has what the tree has.
func TestPowerCut(t *testing.T) {
	volume := newVolume(t, "xfs", 4<<30)
	image := filepath.Join(volume, "0.img")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 1<<30))
	makeFS(t, "ext4", image)
	loads := []load{newJournalLoad("journal"), newReplaceLoad("replaced"), newTruncateLoad("truncated"), newGitLoad("repo"),
		newSQLiteLoad("delete"), newSQLiteLoad("wal"), newFileLoad("closed")}
	base := t.TempDir()
	dir := filepath.Join(base, "mnt")
	must(t, os.Mkdir(dir, 0o755))
	bucket := serveBucket(t, base)
	var log report
	var stored map[string]string // what the bucket had at the last cut
	promises := make([]func(*testing.T, string) (string, int), len(loads))
	for cut := range *cuts + 1 {
		disk := fmt.Sprintf("%s/disk%d", base, cut)
		must(t, os.Mkdir(disk, 0o755))
		unmount := mountDisk(t, image, disk)
		must(t, os.MkdirAll(filepath.Join(disk, "state"), 0o755))
		os.Remove(filepath.Join(base, "state"))
		must(t, os.Symlink(filepath.Join(disk, "state"), filepath.Join(base, "state")))
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) }) // after that of serve
		s := serve(t, base, fmt.Sprintf("%s=%d", bootEnv, cut))
		for i, l := range loads {
			if cut > 0 {
				l.repair(dir)
				log.add(promises[i](t, dir))
			}
		}
		if t.Failed() {
			t.Fatalf("after cut %d", cut)
		}
		if cut == *cuts {
			finish(t, s, dir, bucket)
			unmount()
			neverWorse(t, stored, bucket)
			break
		}
		stop := startLoads(t, dir, loads)
		stopWrites := writeBack(t, filepath.Join(disk, "state"))
		time.Sleep(300*time.Millisecond + rand.N(min(time.Duration(*cuts)*1200*time.Millisecond, 8*time.Second))) // a random moment
		for i, l := range loads {
			promises[i] = l.promise(false)
		}
		next := fmt.Sprintf("%s/%d.img", volume, cut+1)
		if out, err := exec.Command("cp", "--reflink=always", image, next).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
		s.kill()
		stop()
		stopWrites()
		stored = readBucket(t, bucket)
		unix.Unmount(dir, unix.MNT_DETACH)
		unmount()
		must(t, os.Remove(image))
		image = next
	}
	t.Logf("%d power cuts: checked %s", *cuts, log.checks())
}

// mountDisk mounts an image that is to be left soon.
func mountDisk(t *testing.T, image, dir string) (unmount func()) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "loop,commit=1", image, dir).CombinedOutput(); err != nil {
		t.Fatalf("mount %s: %v: %s", image, err, out)
	}
	unmounted := false
	unmount = func() {
		if unmounted {
			return
		}
		unmounted = true
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
			unix.Unmount(dir, unix.MNT_DETACH)
		}
	}
	t.Cleanup(unmount)
	return unmount
}

// neverWorse checks that a file that was whole in the bucket at a power cut is so
// after it, although it was not on the disk.
func neverWorse(t *testing.T, stored map[string]string, bucket object.Store) {
	t.Helper()
	now := readBucket(t, bucket)
	whole := 0
	for key, content := range stored {
		name, ok := strings.CutPrefix(key, "closed/")
		if !ok || !strings.HasPrefix(content, fileContent(name)) {
			continue
		}
		if whole++; !strings.HasPrefix(now[key], fileContent(name)) {
			t.Errorf("object %q had %d bytes at the power cut and has %d now", key, len(content), len(now[key]))
		}
	}
	t.Logf("%d files were in the bucket at the last power cut", whole)
}

// finish waits until a server has taken over what the bucket has, compares both,
// ends it and compares again.
func finish(t *testing.T, s *served, dir string, bucket object.Store) {
	t.Helper()
	var tree map[string]string
	eventually(t, "the bucket has what the tree has", func() bool {
		tree = readTree(t, dir)
		return maps.Equal(tree, readBucket(t, bucket))
	})
	s.stop(t)
	sameAsBucket(t, tree, bucket)
}

func readBucket(t *testing.T, bucket object.Store) map[string]string {
	t.Helper()
	out := make(map[string]string)
	eachObject(t, bucket, func(key, content string) { out[key] = content })
	return out
}

// writeBack is a kernel that is short of memory: it writes some files back long
// before others. What it chooses is the worst for us, the log of the index.
func writeBack(t *testing.T, state string) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-end:
				tick.Stop()
				return
			case <-tick.C:
			}
			logs, _ := filepath.Glob(filepath.Join(state, "index", "batches-*"))
			for _, name := range logs {
				if f, err := os.Open(name); err == nil {
					f.Sync()
					f.Close()
				}
			}
		}
	}()
	return func() { close(end); <-ended }
}
