package index

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

func open(t *testing.T, dir string) *DB {
	t.Helper()
	db, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func update(t *testing.T, db *DB, f func(b *Batch)) {
	t.Helper()
	if err := db.Update(func(b *Batch) error { f(b); return nil }); err != nil {
		t.Fatal(err)
	}
}

var sample = Inode{
	Ino: FirstIno + 7, Tree: FirstIno, Mode: TypeFile | 0o640, UID: 1000, GID: 1001, Size: 1 << 40,
	Mtime: -1, Ctime: 1_700_000_000_123_456_789, Links: 2, Target: "a\xffb",
	Xattrs: map[string][]byte{"user.a": {}, "user.b": {0, 1}},
	Gen:    3, Stamp: Stamp{99, "gw1"}, AttrStamp: Stamp{100, "gw2"}, Remote: true, Explicit: true, Listed: 5,
}

func TestRecordsComeBackAsWritten(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	remote := Remote{Key: "a/b", ETag: "e", LastModified: 4, Size: 5, Ino: sample.Ino, Gen: 2, Stamp: Stamp{1, "x"},
		AttrStamp: Stamp{2, "y"}, Doomed: true, Intent: Intent{sample.Ino, 3, Stamp{3, "z"}, Stamp{4, ""}}}
	saved := Saved{Tree: FirstIno, Path: "p/q", Checkpoint: 2, Ino: 9, Gen: 8, Size: 7, Mode: 0o100644, Mtime: 3,
		Stamp: Stamp{1, "a"}, At: 10, File: "f", Kept: true}
	mark := OpenMark{Size: 1, Mtime: 2, Ctime: 3, Fresh: true}
	update(t, db, func(b *Batch) {
		b.PutInode(sample)
		b.Link(FirstIno, "n\n", sample.Ino, TypeFile)
		b.Link(FirstIno, "m", sample.Ino, TypeFile)
		b.PutRemote(remote)
		b.PutSaved(saved)
		b.MarkOpen(sample.Ino, mark)
		b.MarkOrphan(44)
		b.Enqueue(sample.Ino, 12)
		b.AddMove("old/", 77)
		b.PutTree("t/", FirstIno)
		b.PutSetting("k", 5)
		b.PutText("w", "text")
	})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, dir)
	defer db.Close()
	check := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %+v, want %+v", what, got, want)
		}
	}
	n, err := db.Inode(sample.Ino)
	check("inode error", err, nil)
	check("inode", n, sample)
	e, _ := db.Lookup(FirstIno, "n\n")
	check("entry", e, Entry{"n\n", sample.Ino, TypeFile})
	names, _ := db.Names(&n)
	check("names", names, []Name{{FirstIno, "m"}, {FirstIno, "n\n"}})
	r, ok, _ := db.Remote("a/b")
	check("remote", []any{r, ok}, []any{remote, true})
	s, ok, _ := db.Saved(9, 1)
	check("saved", []any{s, ok}, []any{saved, true})
	_, ok, _ = db.Saved(9, 3)
	check("saved after", ok, false)
	m, ok, _ := db.OpenMark(sample.Ino)
	check("mark", []any{m, ok}, []any{mark, true})
	orphans, _ := db.Orphans()
	check("orphans", orphans, []Ino{44})
	moves, _ := db.Moves()
	check("moves", moves, []Move{{1, "old/", 77}})
	root, ok, _ := db.Tree("t/")
	check("tree", []any{root, ok}, []any{FirstIno, true})
	v, _ := db.Setting("k")
	check("setting", v, uint64(5))
	w, _ := db.Text("w")
	check("text", w, "text")
	db.Queue(func(ino Ino, at int64) bool {
		check("queue", []any{ino, at}, []any{sample.Ino, int64(12)})
		return true
	})
	db.Doomed(func(key string) bool { check("doomed", key, "a/b"); return true })
}

func TestDoomFollowsRemote(t *testing.T) {
	db := open(t, t.TempDir())
	defer db.Close()
	doomed := func() (keys []string) {
		db.Doomed(func(k string) bool { keys = append(keys, k); return true })
		return keys
	}
	update(t, db, func(b *Batch) { b.PutRemote(Remote{Key: "k", Doomed: true}) })
	if got := doomed(); len(got) != 1 {
		t.Errorf("doomed = %q, want k", got)
	}
	update(t, db, func(b *Batch) { b.PutRemote(Remote{Key: "k"}) })
	if got := doomed(); len(got) != 0 {
		t.Errorf("doomed = %q, want none", got)
	}
}

func TestEntriesArePagedInByteOrder(t *testing.T) {
	db := open(t, t.TempDir())
	defer db.Close()
	update(t, db, func(b *Batch) {
		for _, name := range []string{"b", "a", "a\x00", "a\xff", "ä"} {
			b.Link(5, name, 6, TypeFile)
		}
		b.Link(4, "z", 6, TypeFile)
		b.Link(6, "0", 6, TypeFile)
	})
	var got []string
	for after := ""; ; {
		page, err := db.Entries(5, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			got = append(got, e.Name)
			after = e.Name
		}
	}
	if want := []string{"a", "a\x00", "a\xff", "b", "ä"}; !reflect.DeepEqual(got, want) {
		t.Errorf("names = %q, want %q", got, want)
	}
}

func TestDirectoryPaths(t *testing.T) {
	db := open(t, t.TempDir())
	defer db.Close()
	update(t, db, func(b *Batch) {
		b.PutInode(Inode{Ino: 10, Tree: 10, Mode: TypeDir})
		b.PutInode(Inode{Ino: 11, Tree: 10, Mode: TypeDir, Parent: 10, Name: "a"})
		b.PutInode(Inode{Ino: 12, Tree: 10, Mode: TypeDir, Parent: 11, Name: "b"})
		b.PutInode(Inode{Ino: 20, Tree: 10, Mode: TypeDir, Parent: 21, Name: "x"})
		b.PutInode(Inode{Ino: 21, Tree: 10, Mode: TypeDir, Parent: 20, Name: "y"})
	})
	if got, err := db.Path(Name{12, "c"}); got != "a/b/c" || err != nil {
		t.Errorf("Path = %q, %v, want a/b/c", got, err)
	}
	if got, err := db.Path(Name{10, "c"}); got != "c" || err != nil {
		t.Errorf("Path = %q, %v, want c", got, err)
	}
	if _, err := db.Dir(20); err == nil {
		t.Error("Dir of a loop succeeds, want an error")
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	defer db.Close()
	if _, err := Open(dir, slog.New(slog.DiscardHandler)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Open: %v, want an error matching fs.ErrExist", err)
	}
}

func TestFailedUpdateChangesNothing(t *testing.T) {
	db := open(t, t.TempDir())
	defer db.Close()
	refused := errors.New("no")
	err := db.Update(func(b *Batch) error { b.PutInode(sample); return refused })
	if err != refused {
		t.Errorf("Update = %v, want %v", err, refused)
	}
	if _, err := db.Inode(sample.Ino); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Inode after a refused update: %v, want fs.ErrNotExist", err)
	}
}

func TestInodeNumbersAreNeverReused(t *testing.T) {
	dir := t.TempDir()
	seen := make(map[Ino]bool)
	for range 3 {
		db := open(t, dir)
		for range inoLease + 2 {
			ino, err := db.NewIno()
			if err != nil {
				t.Fatal(err)
			}
			if ino < FirstIno || seen[ino] {
				t.Fatalf("NewIno = %d, below FirstIno or given out before", ino)
			}
			seen[ino] = true
		}
		db.Close()
	}
}

// TestReadersSeeNoOldInode has readers fill the cache while it is written.
func TestReadersSeeNoOldInode(t *testing.T) {
	db := open(t, t.TempDir())
	defer db.Close()
	db.inodes = newRecent[Ino, Inode](4) // so that most reads miss
	const rounds, inodes = 300, 16
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for {
				select {
				case <-stop:
					return
				default:
					for i := range inodes {
						db.Inode(Ino(i + 1))
					}
				}
			}
		}()
	}
	for gen := uint64(1); gen <= rounds; gen++ {
		update(t, db, func(b *Batch) {
			for i := range inodes {
				b.PutInode(Inode{Ino: Ino(i + 1), Mode: TypeFile, Gen: gen})
			}
		})
		for i := range inodes {
			if n, err := db.Inode(Ino(i + 1)); err != nil || n.Gen != gen {
				t.Fatalf("inode %d has generation %d (%v) after %d was committed", i+1, n.Gen, err, gen)
			}
		}
	}
	close(stop)
	readers.Wait()
}

const killDir = "BERTH_INDEX_KILL_DIR"

// TestKillLosesNoCommit runs this test binary as a process that commits and
// tells of each commit, and kills it.
func TestKillLosesNoCommit(t *testing.T) {
	if dir := os.Getenv(killDir); dir != "" {
		db := open(t, dir)
		for i := 1; ; i++ {
			update(t, db, func(b *Batch) { b.PutSetting("committed", uint64(i)) })
			fmt.Println("committed", i)
		}
	}
	dir := filepath.Join(t.TempDir(), "index")
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillLosesNoCommit$")
		cmd.Env = append(os.Environ(), killDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var told uint64
		buf := make([]byte, 32<<10)
		var text strings.Builder
		for text.Len() < 40<<10 {
			n, err := out.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(buf[:n])
		}
		cmd.Process.Kill()
		for {
			n, err := out.Read(buf)
			text.Write(buf[:n])
			if err != nil {
				break
			}
		}
		cmd.Wait()
		lines := strings.Split(text.String(), "\n")
		fmt.Sscanf(lines[len(lines)-2], "committed %d", &told)
		db := open(t, dir)
		if got, err := db.Setting("committed"); err != nil || got < told || told == 0 {
			t.Errorf("after kill -9 the last commit is %d (%v), the process had told of %d", got, err, told)
		}
		db.Close()
	}
}

func TestStamps(t *testing.T) {
	a, b := Stamp{5, "a"}, Stamp{5, "b"}
	if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 || (Stamp{6, ""}).Compare(b) <= 0 {
		t.Error("stamps do not order by time, then gateway")
	}
	for _, s := range []Stamp{{}, a, {1<<64 - 1, "abcdefghij012345"}} {
		if got, err := ParseStamp(s.String()); got != s || err != nil {
			t.Errorf("ParseStamp(%q) = %v, %v", s.String(), got, err)
		}
	}
	for _, bad := range []string{"x", "5-a", "000000000000000g-a", "0000000000000005", "0000000000000005-A", "0000000000000005-abcdefghij0123456"} {
		if got, err := ParseStamp(bad); err == nil {
			t.Errorf("ParseStamp(%q) = %v, want an error", bad, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(sample.encode())
	f.Add((&Remote{Key: "k", ETag: "e"}).encode())
	f.Add((&Saved{}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := decodeInode(1, b); err == nil {
			if again, err := decodeInode(1, n.encode()); err != nil || !reflect.DeepEqual(n, again) {
				t.Errorf("inode %+v reads back as %+v, %v", n, again, err)
			}
		}
		decodeRemote("k", b)
		decodeOpenMark(b)
		decodeSaved(numberedKey(tableSaved, 1, 1), b)
		decodeOldEntry(1, oldEntryKey(1, "p", 1), b)
		decodeEntry("e", b)
	})
}

func BenchmarkCommit(b *testing.B) {
	db, err := Open(b.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for i := 0; b.Loop(); i++ {
		n := sample
		n.Ino = FirstIno + Ino(i)
		db.Update(func(b *Batch) error {
			b.AddInode(n)
			b.Link(FirstIno, fmt.Sprint("file", i), n.Ino, TypeFile)
			b.MarkOpen(n.Ino, OpenMark{Fresh: true})
			return nil
		})
	}
}

// What another version wrote is refused, and says what to do.
func TestOtherVersion(t *testing.T) {
	dir := t.TempDir()
	db, err := Open(dir, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.NewIno(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.PutSettingNow("version", version-1), db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, slog.Default()); !errors.Is(err, errOther) {
		t.Errorf("got %v, want errOther", err)
	}
}
