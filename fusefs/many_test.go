package fusefs

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
)

var fileCount = flag.Int("files", 20_000, "files of TestManyFiles, a tenth of them in one directory; from 1,000,000 its times count")

// TestManyFiles walks over many files: what this process keeps does not grow with
// them, and neither start nor lookups take long.
func TestManyFiles(t *testing.T) {
	large := *fileCount / 10
	r := newRig(t)
	root, ok, err := r.db.Tree("")
	if err != nil || !ok {
		t.Fatal("no tree", err)
	}
	r.close()
	fillIndex(t, filepath.Join(r.state, "index"), root, *fileCount, large)
	debug.FreeOSMemory()

	began := time.Now()
	r.open()
	start := time.Since(began)
	began, cpu := time.Now(), cpuTime(t)
	if n := countLines(t, "ls", "-f", r.path("large")); n != large+2 {
		t.Errorf("ls shows %d names, want %d", n, large+2)
	}
	list, work := time.Since(began), cpuTime(t)-cpu
	began = time.Now()
	if n := countLines(t, "find", r.dir, "-type", "f"); n != *fileCount {
		t.Errorf("find shows %d files, want %d", n, *fileCount)
	}
	walk, rss := time.Since(began), residentMiB(t)
	lookup := lookupMedian(t, r, large)
	t.Logf("%d files: start %v, listing of %d names %v (processor %v), find %v, then %d MiB resident, a lookup in the index %v",
		*fileCount, start.Round(time.Millisecond), large, list.Round(time.Millisecond), work.Round(time.Millisecond), walk.Round(time.Millisecond), rss, lookup)
	if rss > 500 && !raceDetector { // which takes several times as much for itself
		t.Errorf("%d MiB are resident, want at most 500", rss)
	}
	if *fileCount >= 1_000_000 && (start > 2*time.Second || min(list, work) > time.Second || lookup > 30*time.Microsecond) {
		t.Error("too slow: want a start within 2 s, a listing within 1 s, lookups of 30 µs")
	}
}

// fillIndex makes files as a listing does that has told of all: some in one
// directory, the others a thousand to each.
func fillIndex(t *testing.T, dir string, root index.Ino, files, large int) {
	db, err := index.Open(dir, testLogger(t))
	must(t, err)
	newIno := func() index.Ino {
		ino, err := db.NewIno()
		must(t, err)
		return ino
	}
	now := time.Now().UnixNano()
	for made, d := 0, 0; made < files; d++ {
		some, name := min(1000, files-made), fmt.Sprint("d", d)
		if d == 0 {
			some, name = large, "large"
		}
		parent := newIno()
		must(t, db.Update(func(b *index.Batch) error {
			b.AddInode(index.Inode{Ino: parent, Tree: root, Parent: root, Name: name, Mode: index.TypeDir | 0o755,
				Mtime: now, Ctime: now, Links: 1, Explicit: true, Listed: now})
			b.Link(root, name, parent, index.TypeDir)
			return nil
		}))
		for from := 0; from < some; from += 1000 {
			must(t, db.Update(func(b *index.Batch) error {
				for i := from; i < min(from+1000, some); i++ {
					n := index.Inode{Ino: newIno(), Tree: root, Mode: index.TypeFile | 0o644, Size: 100, Mtime: now, Ctime: now,
						Links: 1, Gen: 1, Remote: true}
					b.AddInode(n)
					b.Link(parent, fmt.Sprintf("file-%06d.txt", i), n.Ino, index.TypeFile)
				}
				return nil
			}))
		}
		made += some
	}
	must(t, db.Close())
}

func countLines(t *testing.T, name string, args ...string) int {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	must(t, err)
	return bytes.Count(out, []byte("\n"))
}

// cpuTime is what this process, which serves, took of the processors: other work
// on the machine does not count in it.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func residentMiB(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	must(t, err)
	return kib >> 10
}

// lookupMedian looks names up that nobody asked for lately.
func lookupMedian(t *testing.T, r *rig, names int) time.Duration {
	root, _, err := r.db.Tree("")
	must(t, err)
	dir, err := r.db.Lookup(root, "large")
	must(t, err)
	took := make([]time.Duration, 5000)
	for i := range took {
		name := fmt.Sprintf("file-%06d.txt", rand.IntN(names))
		began := time.Now()
		if _, err := r.db.Lookup(dir.Ino, name); err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[len(took)/2]
}
