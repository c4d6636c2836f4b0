package cache

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
)

func open(t *testing.T) *Cache {
	t.Helper()
	c, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, c *Cache, ino index.Ino, data string) {
	t.Helper()
	f, err := c.Create(ino)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(data); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c *Cache, ino index.Ino) string {
	t.Helper()
	f, err := c.Open(ino, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestContent(t *testing.T) {
	c := open(t)
	const ino = index.FirstIno + 0xab
	if _, err := c.Open(ino, os.O_RDWR|unix.O_CREAT); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("open of a missing file: got %v, want fs.ErrNotExist", err)
	}
	if _, err := c.Stat(ino); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("stat of a missing file: got %v, want fs.ErrNotExist", err)
	}
	write(t, c, ino, "one")
	if got := read(t, c, ino); got != "one" {
		t.Errorf("got %q, want one", got)
	}
	old, err := c.Open(ino, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	temp, err := c.Temp()
	if err != nil {
		t.Fatal(err)
	}
	temp.WriteString("second")
	if err := c.Adopt(temp, ino); err != nil {
		t.Fatal(err)
	}
	if got := read(t, c, ino); got != "second" {
		t.Errorf("after Adopt: got %q, want second", got)
	}
	if data, _ := io.ReadAll(old); string(data) != "one" {
		t.Errorf("old descriptor: got %q, want one", data)
	}
	st, err := c.Stat(ino)
	if err != nil || st.Size != 6 {
		t.Errorf("stat: got %+v, %v, want size 6", st, err)
	}
	seen := 0
	if err := c.Sweep(func(i index.Ino, st Stat) bool { seen++; return i == ino }); err != nil || seen != 1 {
		t.Errorf("sweep: saw %d files, %v, want 1", seen, err)
	}
	for range 2 {
		if err := c.Remove(ino); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
}

func TestSettled(t *testing.T) {
	c := open(t)
	const ino = index.FirstIno
	f, err := c.Create(ino)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	check := func(when string, want bool) {
		t.Helper()
		got, err := c.Settled(ino)
		if err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", when, got, err, want)
		}
	}
	check("open for writing", false)
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	check("mapped", false)
	if err := unix.Munmap(mem); err != nil {
		t.Fatal(err)
	}
	check("closed and unmapped", true)
	r, err := c.Open(ino, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	check("open for reading", true)
}

// A store through a mapping must move the mtime once the pages were written out,
// or changes after a snapshot would be missed.
func TestWriteOutMakesStoresVisible(t *testing.T) {
	c := open(t)
	if c.Blind() {
		t.Log("the cache says itself that times tell nothing here")
		return
	}
	f, err := c.Create(index.FirstIno)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Write(make([]byte, 4096))
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	mem[0] = 1
	if err := WriteOut(f); err != nil {
		t.Fatal(err)
	}
	past := unix.NsecToTimespec(1e9)
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, c.Path(index.FirstIno), []unix.Timespec{past, past}, 0); err != nil {
		t.Fatal(err)
	}
	mem[1] = 1
	st, err := StatFile(f)
	if err != nil || st.Mtime == 1e9 {
		t.Errorf("mtime after a store: got %d, %v, want it moved", st.Mtime, err)
	}
}

func TestCloneKeepsHoles(t *testing.T) {
	c := open(t)
	f, err := c.Create(index.FirstIno)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 8 << 20
	f.Truncate(size)
	f.WriteAt([]byte("middle"), 2<<20)
	f.WriteAt([]byte("end"), size-3)
	dst, err := c.Temp()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Clone(index.FirstIno, dst); err != nil {
		t.Fatal(err)
	}
	if err := c.Adopt(dst, index.FirstIno+1); err != nil {
		t.Fatal(err)
	}
	st, err := c.Stat(index.FirstIno + 1)
	if err != nil || st.Size != size || st.Used > 1<<20 {
		t.Errorf("clone: got %+v, %v, want size %d and little disk", st, err, size)
	}
	if read(t, c, index.FirstIno) != read(t, c, index.FirstIno+1) {
		t.Error("the clone differs")
	}
}

func TestSnapshotAndBefore(t *testing.T) {
	c := open(t)
	const ino = index.FirstIno
	write(t, c, ino, "first")
	f, err := c.Open(ino, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := c.Snapshot(f, ino, 3); err != nil {
		t.Fatal(err)
	}
	if err := c.SetAside(f, "b1"); err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte("FIRST"), 0)
	if got, err := os.ReadFile(c.SnapshotPath(ino, 3)); err != nil || string(got) != "first" {
		t.Errorf("snapshot: got %q, %v, want first", got, err)
	}
	if !c.HasSnapshot(ino, 3) || c.HasSnapshot(ino, 4) {
		t.Error("HasSnapshot is wrong")
	}
	b, err := c.OpenBefore("b1")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if data, _ := io.ReadAll(b); !bytes.Equal(data, []byte("first")) {
		t.Errorf("before: got %q, want first", data)
	}
	if err := c.RemoveSnapshots(ino, 3); err != nil {
		t.Fatal(err)
	}
	if c.HasSnapshot(ino, 3) {
		t.Error("the snapshot is still there after RemoveSnapshots")
	}
	if all, err := c.Befores(); err != nil || len(all) != 1 || all["b1"].Size != 5 {
		t.Errorf("befores: got %v, %v", all, err)
	}
}
