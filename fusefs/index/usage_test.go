package index

import (
	"log/slog"
	"math/rand/v2"
	"testing"
)

// TestUsageFollowsBatches writes and deletes inodes at random, several times in
// one batch too, and finds the usage that is kept the same as a count, also after
// a new start, and after one from an index without usage.
func TestUsageFollowsBatches(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, dir)
	rnd := rand.New(rand.NewPCG(3, 4))
	const first, trees = FirstIno, 3
	for range 500 {
		err := db.Update(func(b *Batch) error {
			for range 1 + rnd.IntN(20) {
				ino := first + Ino(rnd.IntN(60))
				n := Inode{Ino: ino, Tree: first + ino%trees, Size: rnd.Int64N(1000), Links: 1,
					Mode: []uint32{TypeFile, TypeFile, TypeDir, TypeSymlink}[rnd.IntN(4)]}
				if rnd.IntN(3) == 0 {
					b.DeleteInode(ino)
				} else {
					b.PutInode(n)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string) {
		t.Helper()
		want, err := db.CountUsage()
		if err != nil {
			t.Fatal(err)
		}
		for tree := Ino(first); tree < first+trees; tree++ {
			if got := db.StoredUsage(tree); got != want[tree] {
				t.Errorf("%s: tree %d has %+v, want %+v", what, tree, got, want[tree])
			}
			if total, _, _ := db.Usage(tree); total != want[tree] {
				t.Errorf("%s: tree %d has %+v in total, want %+v", what, tree, total, want[tree])
			}
		}
	}
	check("as written")
	reopen := func() {
		t.Helper()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = openDB(t, dir)
	}
	reopen()
	check("after a new start")
	err := db.Update(func(b *Batch) error { // what an index of before has not
		b.PutSetting(countedSetting, 0)
		for tree := Ino(first); tree < first+trees; tree++ {
			b.delete(inoKey(tableUsage, tree))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	reopen()
	check("counted anew")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func openDB(t *testing.T, dir string) *DB {
	t.Helper()
	db, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// TestLiveSizes has open files count by their live sizes and tells what is left
// of a tree's limit and of its sum's.
func TestLiveSizes(t *testing.T) {
	db := openDB(t, t.TempDir())
	defer db.Close()
	const a, b = FirstIno, FirstIno + 1
	file := Inode{Ino: FirstIno + 10, Tree: a, Mode: TypeFile, Size: 100, Links: 1}
	db.SetLimit(a, Usage{Bytes: 1000, Files: 5}, "w", Usage{Bytes: 1500})
	db.SetLimit(b, Usage{}, "w", Usage{Bytes: 1500})
	put := func(do func(*Batch)) {
		t.Helper()
		if err := db.Update(func(b *Batch) error { do(b); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, tree Ino, bytes, room int64) {
		t.Helper()
		if total, _, left := db.Usage(tree); total.Bytes != bytes || left.Bytes != room {
			t.Errorf("%s: got %d bytes with room for %d, want %d and %d", what, total.Bytes, left.Bytes, bytes, room)
		}
	}
	put(func(b *Batch) { b.AddInode(file); b.CountOpen(&file, false) })
	want("opened", a, 100, 900)
	if got := db.Grow(file.Ino, 300); got != 300 {
		t.Errorf("granted %d, want 300", got)
	}
	want("grown", a, 300, 700)
	file.Size = 250
	put(func(b *Batch) { b.PutInode(file) })
	want("settled while open", a, 300, 700)
	if db.GrowTo(file.Ino, 1001) {
		t.Error("granted more than the limit")
	}
	want("refused", a, 300, 700)
	if got := db.Grow(file.Ino, 1001); got != 1000 {
		t.Errorf("granted %d, want the 1000 that fit", got)
	}
	put(func(bt *Batch) { bt.AddInode(Inode{Ino: FirstIno + 20, Tree: b, Mode: TypeFile, Size: 400, Links: 1}) })
	want("the other tree of the sum", b, 400, 100)
	db.Resize(file.Ino, 200)
	want("shrunk", a, 200, 800)
	want("the sum has room", b, 400, 900)
	put(func(b *Batch) { b.DeleteInode(file.Ino); b.CountOpen(&file, true) })
	want("unlinked", a, 200, 800)
	db.EndOpen(file.Ino)
	want("closed", a, 0, 1000)
	if total, _, _ := db.Usage(a); total.Files != 0 {
		t.Errorf("got %d files, want 0", total.Files)
	}
}
