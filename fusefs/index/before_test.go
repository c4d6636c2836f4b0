package index

import (
	"fmt"
	"slices"
	"testing"
)

// What was at a checkpoint is found at the first record since, by name and by
// inode, and all that changed since in one scan.
func TestBefore(t *testing.T) {
	db := open(t, t.TempDir())
	defer db.Close()
	update(t, db, func(b *Batch) {
		for n := uint64(1); n <= 4; n++ {
			b.PutCheckpoint(FirstIno, n, n*100)
		}
		b.PutCheckpoint(FirstIno+1, 5, 500)
		b.PutOldEntry(OldEntry{Tree: FirstIno, Parent: FirstIno, Name: "a", Checkpoint: 2, Ino: 7, Type: TypeFile})
		b.PutOldEntry(OldEntry{Tree: FirstIno, Parent: FirstIno, Name: "a", Checkpoint: 4})
		b.PutOldEntry(OldEntry{Tree: FirstIno, Parent: FirstIno, Name: "aa", Checkpoint: 1, Ino: 9, Type: TypeDir})
		b.PutSaved(Saved{Tree: FirstIno, Ino: 7, Checkpoint: 3, Gen: 2})
		b.PutSaved(Saved{Tree: FirstIno + 1, Ino: 8, Checkpoint: 5, Gen: 2})
	})
	for checkpoint, want := range map[uint64]string{1: "7 at 2", 2: "7 at 2", 3: "0 at 4", 4: "0 at 4", 5: "none"} {
		e, ok, err := db.OldEntry(FirstIno, "a", checkpoint)
		got := "none"
		if ok {
			got = fmt.Sprintf("%d at %d", e.Ino, e.Checkpoint)
		}
		if err != nil || got != want {
			t.Errorf("at %d: got %s, %v, want %s", checkpoint, got, err, want)
		}
	}
	since := func(tree Ino, checkpoint uint64) []string {
		t.Helper()
		var out []string
		err := db.Since(tree, checkpoint,
			func(e OldEntry) bool { out = append(out, fmt.Sprint(e.Checkpoint, e.Name, e.Ino)); return true },
			func(s Saved) bool { out = append(out, fmt.Sprint(s.Checkpoint, "content", s.Ino)); return true })
		if err != nil {
			t.Error(err)
		}
		return out
	}
	if got, want := since(FirstIno, 2), []string{"2a7", "3content7", "4a0"}; !slices.Equal(got, want) {
		t.Errorf("since 2: got %q, want %q", got, want)
	}
	for _, tc := range []struct {
		from, to uint64
		want     bool
	}{{100, 101, true}, {99, 100, false}, {101, 200, false}, {150, 250, true}, {401, 900, false}, {400, 900, true}} {
		if got, err := db.CheckpointBetween(FirstIno, tc.from, tc.to); err != nil || got != tc.want {
			t.Errorf("between %d and %d: got %v, %v, want %v", tc.from, tc.to, got, err, tc.want)
		}
	}
	drop := func(below uint64, limit int) (dropped int, more bool) {
		t.Helper()
		update(t, db, func(b *Batch) {
			var err error
			if dropped, more, err = b.DropCheckpoints(FirstIno, below, limit); err != nil {
				t.Error(err)
			}
		})
		return dropped, more
	}
	if dropped, more := drop(4, 2); dropped != 2 || !more {
		t.Errorf("the first part: got %d, %v", dropped, more)
	}
	if ok, _ := db.HasCheckpoint(FirstIno, 1); !ok {
		t.Error("a checkpoint went before its records")
	}
	if dropped, more := drop(4, 2); dropped != 1 || more {
		t.Errorf("the rest: got %d, %v", dropped, more)
	}
	if got := since(FirstIno, 0); !slices.Equal(got, []string{"4a0"}) {
		t.Errorf("left: %q", got)
	}
	if got := since(FirstIno+1, 0); !slices.Equal(got, []string{"5content8"}) {
		t.Errorf("of the other tree: %q", got)
	}
	old, _ := db.HasCheckpoint(FirstIno, 3)
	young, _ := db.HasCheckpoint(FirstIno, 4)
	if _, ok, _ := db.Saved(7, 0); old || !young || ok {
		t.Errorf("checkpoint 3 is there: %v, 4: %v, the content of 3: %v", old, young, ok)
	}
}
