package fusefs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newSmallRig mounts a bucket whose cache is on a volume of its own, with a floor.
func newSmallRig(t *testing.T, size, floor int64, change func(*Options)) *rig {
	t.Helper()
	base := t.TempDir()
	image, dir := filepath.Join(base, "image"), filepath.Join(base, "volume")
	must(t, errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size), os.Mkdir(dir, 0o755)))
	for _, args := range [][]string{{"mkfs.ext4", "-qF", "-m", "0", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	return newRig(t, func(o *Options) {
		o.StateDir, o.FloorBytes = filepath.Join(dir, "state"), floor
		change(o)
	})
}

// above returns what the volume has above the floor. Below it the index takes what
// it needs.
func (r *rig) above() int64 {
	r.t.Helper()
	free, _, err := r.cache.Free()
	must(r.t, err)
	return free - r.space.floor
}

// TestFloor lets a hostile writer, which the kernel serves itself, fill the disk.
// It is stopped at the floor, and what others do then is in the reach of the
// volume: writes wait and are refused, and go on when there is room.
func TestFloor(t *testing.T) {
	const floor = 400 << 20
	r := newSmallRig(t, 1<<30, floor, func(o *Options) { o.near, o.spaceWait = 1, time.Second })
	if !r.Passthrough() || !r.cache.Freezes() {
		t.Skip("the kernel writes to no files here, or cannot be stopped from it")
	}
	w := startWriter(t, r.path("hostile"))
	written, fifth, errno := w.storm()
	if errno != syscall.EPERM {
		t.Fatalf("the writer ended with %v after %d bytes, want EPERM", errno, written)
	}
	below := -r.above()
	if below > fifth {
		t.Errorf("the volume is %d MiB below its floor, want at most the %d MiB of a fifth of a second", below>>20, fifth>>20)
	}
	t.Logf("%d MiB below the floor after %d MiB, %.0f ms of writing", below>>20, written>>20, float64(below)/float64(fifth)*200)

	begun := time.Now()
	err := os.WriteFile(r.path("other"), []byte("x"), 0o644)
	if waited := time.Since(begun); !errors.Is(err, syscall.ENOSPC) || waited < time.Second/2 || waited > 5*time.Second {
		t.Errorf("another writer at the floor: got %v after %v, want ENOSPC after a second", err, waited)
	}
	if errno := w.do("os.ftruncate(f, 1 << 20)"); errno != 0 {
		t.Errorf("making room: %v", errno)
	}
	must(t, os.WriteFile(r.path("other"), []byte("x"), 0o644))
	if errno := w.do("os.pwrite(f, b, 0); os.close(f)"); errno != 0 {
		t.Errorf("writing in the room: %v", errno)
	}
	r.checkUsage()
}

// TestFloorEvicts writes more than the volume holds, with all in the bucket before
// long: clean content makes room, and nothing is lost.
func TestFloorEvicts(t *testing.T) {
	r := newSmallRig(t, 140<<20, 40<<20, func(o *Options) { o.CacheBytes = 1 << 30 })
	const files, size = 14, 10 << 20
	for i := range files {
		must(t, os.WriteFile(r.path(fmt.Sprint(i)), bytes.Repeat([]byte{byte(i + 1)}, size), 0o644))
		r.flush()
	}
	if above := r.above(); above < -r.space.floor/2 {
		t.Errorf("the volume is %d KiB below its floor", -above>>10)
	}
	for i := range files {
		got, err := os.ReadFile(r.path(fmt.Sprint(i)))
		if err != nil || len(got) != size || got[0] != byte(i+1) || got[size-1] != byte(i+1) {
			t.Errorf("file %d: got %d bytes, %v", i, len(got), err)
		}
	}
	if above := r.above(); above < -r.space.floor/2 {
		t.Errorf("after reading the volume is %d KiB below its floor", -above>>10)
	}
}

// TestFloorWaits has a writer at the floor go on when an upload has made content
// clean.
func TestFloorWaits(t *testing.T) {
	r := newSmallRig(t, 120<<20, 40<<20, func(o *Options) { o.CacheBytes = 1 << 30 })
	f, err := os.Create(r.path("dirty"))
	must(t, err)
	defer f.Close()
	for {
		if _, err = f.Write(make([]byte, 1<<20)); err != nil || r.space.room() < 2<<20 {
			break
		}
	}
	must(t, err)
	must(t, f.Close())
	must(t, os.WriteFile(r.path("more"), make([]byte, 10<<20), 0o644))
	if above := r.above(); above < -r.space.floor/2 {
		t.Errorf("the volume is %d KiB below its floor", -above>>10)
	}
}
