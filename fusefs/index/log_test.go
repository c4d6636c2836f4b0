package index

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// TestLogIsReplayed fills both files of the log several times: all is there after
// the next Open, and the files do not grow without end.
func TestLogIsReplayed(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	value := strings.Repeat("x", 64<<10)
	const batches = 3 * logFull / (64 << 10)
	for i := range batches {
		update(t, db, func(b *Batch) { b.PutText(fmt.Sprint(i), value+fmt.Sprint(i)) })
		if i%100 == 0 {
			if err := db.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds what the first wrote anew
		db = open(t, dir)
		for i := range batches {
			if got, err := db.Text(fmt.Sprint(i)); err != nil || got != value+fmt.Sprint(i) {
				t.Fatalf("batch %d of %d is gone: %.20q %v", i, batches, got, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		if info, err := os.Stat(logPath(dir, i)); err != nil || info.Size() > 2*logFull {
			t.Errorf("file %d of the log: %v, %v", i, info, err)
		}
	}
}

// TestLogAfterPowerCut lets any of the pages that were written since the last sync
// miss the disk: what is read back are the first records, none in part, and at
// least those that were synced.
func TestLogAfterPowerCut(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		l, err := openLog(dir, 7, 100)
		if err != nil {
			t.Fatal(err)
		}
		pebble, synced, onDisk := l.seq, l.seq, readLog(t, dir)
		for i := range 400 {
			if r.IntN(150) == 0 {
				pebble, synced = l.seq, l.seq // has all on disk
				err = l.begin()
			} else {
				err = l.add(recordOf(l.next(), r.IntN(4000)))
			}
			if err == nil && r.IntN(60) == 0 {
				err = l.sync()
				synced, onDisk = l.seq, readLog(t, dir)
			}
			if err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
		last := l.seq
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		cut(t, r, dir, onDisk)
		checkReplay(t, dir, pebble, synced, last)
	}
}

func recordOf(seq uint64, size int) []byte {
	return append(fmt.Appendf(nil, "%d ", seq), bytes.Repeat([]byte{byte(seq)}, size)...)
}

func readLog(t *testing.T, dir string) (out [2][]byte) {
	for i := range out {
		var err error
		if out[i], err = os.ReadFile(logPath(dir, i)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// cut leaves of each page either what was on disk or what was written since.
func cut(t *testing.T, r *rand.Rand, dir string, onDisk [2][]byte) {
	const page = 4096
	for i, text := range readLog(t, dir) {
		before := append(onDisk[i], make([]byte, len(text))...)
		for at := 0; at < len(text); at += page {
			if end := min(at+page, len(text)); r.IntN(8) == 0 {
				copy(text[at:end], before[at:end])
			}
		}
		if err := os.WriteFile(logPath(dir, i), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// checkReplay reads back what follows the record that Pebble has.
func checkReplay(t *testing.T, dir string, pebble, synced, last uint64) {
	t.Helper()
	next := pebble + 1
	got, err := replayLog(dir, 7, pebble, func(seq uint64, batch []byte) error {
		if seq != next {
			t.Errorf("record %d comes where %d should", seq, next)
		}
		next++
		if head, _, _ := bytes.Cut(batch, []byte(" ")); string(head) != fmt.Sprint(seq) {
			t.Errorf("record %d reads %.20q", seq, batch)
		}
		return nil
	})
	if err != nil || got < synced || got > last {
		t.Errorf("read back up to %d, was synced up to %d of %d: %v", got, synced, last, err)
	}
	if none, err := replayLog(dir, 8, 100, func(uint64, []byte) error { return nil }); err != nil || none != 100 {
		t.Errorf("records of another epoch are read: up to %d, %v", none, err)
	}
}
