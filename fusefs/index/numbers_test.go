package index

import "testing"

// Numbers of two indexes do not meet, and an index that has used up a block goes on
// with another; it knows all of them again.
func TestBlocksOfNumbers(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, t.TempDir())
	defer b.Close()
	draw := func(db *DB) Ino {
		t.Helper()
		ino, err := db.NewIno()
		if err != nil {
			t.Fatal(err)
		}
		if ino < FirstIno || ino > MaxIno || !db.Gave(ino) {
			t.Fatalf("got %#x, which is out of bounds or not known", uint64(ino))
		}
		return ino
	}
	first, other := draw(a), draw(b)
	if blockOf(first) == blockOf(other) || a.Gave(other) {
		t.Errorf("two indexes gave %#x and %#x", uint64(first), uint64(other))
	}
	last := (blockOf(first)+1)<<blockBits - 1
	a.numbers.next, a.numbers.max = last, last+1 // as if all before were used
	if got := draw(a); got != last {
		t.Errorf("got %#x, want the last of the block, %#x", uint64(got), uint64(last))
	}
	second := draw(a)
	if blockOf(second) == blockOf(first) {
		t.Errorf("got %#x after the end of a block", uint64(second))
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = open(t, dir)
	defer a.Close()
	if !a.Gave(first) || !a.Gave(second) || a.Gave(other) {
		t.Error("the blocks are not the same after opening again")
	}
	if third := draw(a); blockOf(third) != blockOf(second) {
		t.Errorf("got %#x after opening again, want one of the block of %#x", uint64(third), uint64(second))
	}
}
