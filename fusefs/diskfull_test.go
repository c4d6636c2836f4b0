package fusefs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"berth"
	"berth/fusefs/object/mem"
)

// newFullRig mounts with its state on a small volume.
func newFullRig(t *testing.T, kind string, size int64) (r *rig, store *mem.Store, volume string) {
	t.Helper()
	volume = newVolume(t, kind, size)
	store = new(mem.Store)
	must(t, os.Mkdir(filepath.Join(volume, "state"), 0o755))
	r = newRig(t, func(o *Options) {
		o.Store, o.StateDir, o.spaceWait = store, filepath.Join(volume, "state"), fullWait
	})
	return r, store, volume
}

const (
	mebi     = 1 << 20
	fullWait = 3 * time.Second // for room, in place of spaceWait
)

// writeMebi writes a file of some MiB whose content tells its name.
func (r *rig) writeMebi(name string, n int) error {
	return os.WriteFile(r.path(name), mebiOf(name, n), 0o644)
}

func mebiOf(name string, n int) []byte {
	line := []byte(fmt.Sprintf("%-63s\n", name))
	return bytes.Repeat(line, n*mebi/len(line))
}

func (r *rig) checkMebi(names []string, n int) {
	r.t.Helper()
	for _, name := range names {
		if got, err := os.ReadFile(r.path(name)); err != nil || !bytes.Equal(got, mebiOf(name, n)) {
			r.t.Errorf("%s: got %d bytes, %v", name, len(got), err)
		}
	}
}

// TestDiskFull fills a cache on a small volume while the store is away: clean
// content goes first, then writers wait, then they are refused; names can still
// be changed, nothing is lost, and when the store is back all goes on by itself.
func TestDiskFull(t *testing.T) {
	for kind, size := range map[string]int64{"ext4": 200 * mebi, "xfs": 320 * mebi} {
		if kind == "xfs" && !*long {
			continue
		}
		t.Run(kind, func(t *testing.T) { testDiskFull(t, kind, size) })
	}
}

func testDiskFull(t *testing.T, kind string, size int64) {
	r, store, _ := newFullRig(t, kind, size)
	var clean, dirty []string
	for i := range 10 {
		clean = append(clean, fmt.Sprint("clean", i))
		must(t, r.writeMebi(clean[i], 4))
	}
	r.flush()
	heal := store.Inject(mem.Fault{Err: berth.ErrUnavailable})
	defer heal()
	begun := time.Now()
	var err error
	for i := 0; i < 200; i++ {
		name, start := fmt.Sprint("dirty", i), time.Now()
		if err = r.writeMebi(name, 4); err != nil {
			if took := time.Since(start); took < fullWait/2 || took > 6*fullWait {
				t.Errorf("refused after %v, want about %v for each request", took, fullWait)
			}
			break
		}
		dirty = append(dirty, name)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a full disk: got %v, want ENOSPC", err)
	}
	if held := int64(len(dirty)) * 4 * mebi; held < size/2 {
		t.Errorf("only %d MiB of dirty content fit into %d", held/mebi, size/mebi)
	}
	t.Logf("%d MiB of dirty content fit into %d, written in %v", len(dirty)*4, size/mebi, time.Since(begun).Round(time.Second))
	for _, name := range clean {
		if n, err := r.db.Inode(r.inoOf(name)); err != nil || !n.Remote {
			t.Errorf("%s is still in the cache, %v", name, err)
		}
	}
	must(t, os.Mkdir(r.path("d"), 0o755))
	must(t, os.Rename(r.path(dirty[0]), r.path("d/renamed")))
	must(t, os.Chmod(r.path("d/renamed"), 0o600))
	must(t, os.Rename(r.path("d/renamed"), r.path(dirty[0])))
	must(t, os.Remove(r.path(dirty[1])))
	dirty = append(dirty[:1], dirty[2:]...)

	// One who waits gets room as soon as there is some.
	waited := make(chan error, 1)
	go func() { waited <- r.writeMebi("waits", 40) }()
	heal()
	if err := <-waited; err != nil {
		t.Errorf("a writer while the store comes back: %v", err)
	}
	must(t, r.writeMebi("after", 40))
	r.settle() // a snapshot of a file that is still open would need room of its own
	r.flush()
	r.checkMebi(dirty, 4)
	r.checkMebi(clean, 4)
	r.checkMebi([]string{"waits", "after"}, 40)
	if got, err := r.object("waits"); err != nil || got != string(mebiOf("waits", 40)) {
		t.Errorf("the object: %d bytes, %v", len(got), err)
	}
}

// TestVolumeFilledByOthers lets another program take all of the volume: berth goes
// on, with errors where it needs space, and is well again when that is gone.
func TestVolumeFilledByOthers(t *testing.T) {
	r, store, volume := newFullRig(t, "ext4", 200*mebi)
	heal := store.Inject(mem.Fault{Op: mem.OpPut, Err: berth.ErrUnavailable}) // so that nothing is evicted
	defer heal()
	must(t, r.writeMebi("before", 4))
	fill := func() {
		f, err := os.OpenFile(filepath.Join(volume, "other"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		must(t, err)
		defer f.Close()
		for chunk := make([]byte, mebi); len(chunk) > 0; {
			if _, err := f.Write(chunk); err != nil {
				chunk = chunk[:len(chunk)/2]
			}
		}
	}
	refused := 0
	for i := range 3000 {
		if i%200 == 0 {
			fill() // also what the index gave back
		}
		name := r.path(fmt.Sprintf("%0200d", i))
		if err := os.Mkdir(name, 0o755); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("mkdir on a full volume: %v", err)
			}
			refused++
		}
	}
	t.Logf("%d of 3000 directories were refused", refused)
	if got, err := os.ReadFile(r.path("before")); err != nil || !bytes.Equal(got, mebiOf("before", 4)) {
		t.Errorf("a file from before: %d bytes, %v", len(got), err)
	}
	must(t, os.Remove(filepath.Join(volume, "other")))
	eventually(t, "there is room again", func() bool { return r.writeMebi("after", 4) == nil })
	heal()
	r.flush()
	r.close()
	r.open()
	r.checkMebi([]string{"before", "after"}, 4)
}
