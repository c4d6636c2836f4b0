package index

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// What was before a checkpoint. A record is written when an entry or a content
// changes for the first time after a checkpoint of its tree; it says what was
// there then. What was at an older checkpoint is in the record of the first one
// at or after it, and where there is none nothing changed since.

// The tables of this file.
const (
	tableCheckpoint = 'k'
	tableSaved      = 'c'
	tableOldEntry   = 'e'
	tableJournal    = 'j'
)

// A Saved is the content of a file before it was changed or went.
type Saved struct {
	Ino        Ino
	Checkpoint uint64 // the tree's checkpoint that it was saved for
	Tree       Ino
	Path       string // below the tree's root, one of those it had when it was saved
	Gen        uint64
	Size       int64
	Mode       uint32
	Mtime      int64
	Stamp      Stamp
	At         int64  // when it was saved, Unix ns
	File       string // its bytes, a name in the cache's "before" directory; "" = not there
	Kept       bool   // the bytes are in the bucket's history, under Path and Stamp
}

// An OldEntry is what a directory had under a name before that changed.
type OldEntry struct {
	Tree       Ino
	Parent     Ino
	Name       string
	Checkpoint uint64 // the tree's checkpoint that it was noted for
	Ino        Ino    // 0 = nothing
	Type       uint32 // type bits
}

// PutCheckpoint notes a checkpoint of a tree; clock is its place in the order of
// stamps (Stamp.Time).
func (b *Batch) PutCheckpoint(tree Ino, number, clock uint64) {
	b.set(numberedKey(tableCheckpoint, tree, number), binary.BigEndian.AppendUint64([]byte{version}, clock))
}

// PutSaved writes what a file held.
func (b *Batch) PutSaved(s Saved) {
	key := numberedKey(tableSaved, s.Ino, s.Checkpoint)
	b.set(key, s.encode())
	b.set(journalKey(s.Tree, s.Checkpoint, key), nil)
}

// PutOldEntry writes what a directory had under a name.
func (b *Batch) PutOldEntry(e OldEntry) {
	key := oldEntryKey(e.Parent, e.Name, e.Checkpoint)
	enc := newEncoder(16)
	enc.uint(uint64(e.Ino))
	enc.uint(uint64(e.Type))
	b.set(key, enc.b)
	b.set(journalKey(e.Tree, e.Checkpoint, key), nil)
}

// DropCheckpoints forgets the checkpoints of a tree below a number, with up to
// limit of their records, oldest first; more says that there are more. The files
// of the Saved are the caller's.
func (b *Batch) DropCheckpoints(tree Ino, below uint64, limit int) (dropped int, more bool, err error) {
	prefix := inoKey(tableJournal, tree)
	err = b.db.scan(prefix, nil, func(k, _ []byte) bool {
		if binary.BigEndian.Uint64(k[9:]) >= below {
			return false
		}
		if dropped == limit {
			more = true
			return false
		}
		dropped++
		b.delete(append([]byte{}, k...))
		b.delete(append([]byte{}, k[17:]...))
		return true
	})
	if err != nil || more {
		return dropped, more, err
	}
	return dropped, false, b.batch.DeleteRange(inoKey(tableCheckpoint, tree), numberedKey(tableCheckpoint, tree, below), nil)
}

// A Checkpoint is one of a tree's.
type Checkpoint struct {
	Number uint64
	Clock  uint64 // Stamp.Time when it was made
}

// Checkpoints calls f for the checkpoints of a tree, the latest first, until f
// returns false.
func (db *DB) Checkpoints(tree Ino, f func(Checkpoint) bool) error {
	prefix := inoKey(tableCheckpoint, tree)
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return fmt.Errorf("cannot read index: %w", err)
	}
	for ok := it.Last(); ok; ok = it.Prev() {
		if v := it.Value(); len(v) == 9 && v[0] == version {
			if !f(Checkpoint{binary.BigEndian.Uint64(it.Key()[9:]), binary.BigEndian.Uint64(v[1:])}) {
				break
			}
		}
	}
	err = it.Error()
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("cannot read index: %w", err)
	}
	return nil
}

// manyCheckpoints bounds a search among the latest.
const manyCheckpoints = 256

// CheckpointBetween says whether a tree has a checkpoint at or after from and
// before to, both Stamp.Times. Of two times that are long ago it may say so
// wrongly.
func (db *DB) CheckpointBetween(tree Ino, from, to uint64) (found bool, err error) {
	looked := 0
	err = db.Checkpoints(tree, func(c Checkpoint) bool {
		looked++
		found = c.Clock < to && c.Clock >= from || looked == manyCheckpoints
		return !found && c.Clock >= from
	})
	return found, err
}

// CheckpointBehind returns the number below which the checkpoints of a tree must go
// so that no more than most records are left, 0 if there are no more.
func (db *DB) CheckpointBehind(tree Ino, most int) (below uint64, err error) {
	prefix := inoKey(tableJournal, tree)
	count := 0
	if err := db.scan(prefix, nil, func(_, _ []byte) bool { count++; return true }); err != nil || count <= most {
		return 0, err
	}
	err = db.scan(prefix, nil, func(k, _ []byte) bool {
		at := binary.BigEndian.Uint64(k[9:])
		if count <= most && at != below-1 {
			return false
		}
		below = at + 1
		count--
		return true
	})
	return below, err
}

// HasCheckpoint says whether a tree has a checkpoint of the number.
func (db *DB) HasCheckpoint(tree Ino, number uint64) (bool, error) {
	_, ok, err := db.get(numberedKey(tableCheckpoint, tree, number))
	return ok, err
}

// Saved returns the content that a file had at a checkpoint; ok is false when it
// was not changed since.
func (db *DB) Saved(ino Ino, checkpoint uint64) (s Saved, ok bool, err error) {
	var bad error
	err = db.scan(inoKey(tableSaved, ino), numberedKey(tableSaved, ino, checkpoint), func(k, v []byte) bool {
		s, bad = decodeSaved(k, v)
		ok = bad == nil
		return false
	})
	if err == nil {
		err = bad
	}
	return s, ok, err
}

// OldEntry returns what a directory had under a name at a checkpoint; ok is false
// when that did not change since.
func (db *DB) OldEntry(parent Ino, name string, checkpoint uint64) (e OldEntry, ok bool, err error) {
	prefix := oldEntryKey(parent, name, 0)
	var bad error
	err = db.scan(prefix[:len(prefix)-8], oldEntryKey(parent, name, checkpoint), func(k, v []byte) bool {
		e, bad = decodeOldEntry(0, k, v)
		ok = bad == nil
		return false
	})
	if err == nil {
		err = bad
	}
	return e, ok, err
}

// HasSaved says whether a file's content was saved for this very checkpoint,
// HasOldEntry whether a name was noted for it.
func (db *DB) HasSaved(ino Ino, checkpoint uint64) (bool, error) {
	_, ok, err := db.get(numberedKey(tableSaved, ino, checkpoint))
	return ok, err
}

func (db *DB) HasOldEntry(parent Ino, name string, checkpoint uint64) (bool, error) {
	_, ok, err := db.get(oldEntryKey(parent, name, checkpoint))
	return ok, err
}

// Since calls one of the functions for each record of a tree's checkpoints from
// the given one on, those of one checkpoint after those of the one before, until
// it returns false.
func (db *DB) Since(tree Ino, checkpoint uint64, entry func(OldEntry) bool, saved func(Saved) bool) error {
	var bad error
	err := db.scan(inoKey(tableJournal, tree), numberedKey(tableJournal, tree, checkpoint), func(k, _ []byte) bool {
		key := k[17:]
		v, ok, err := db.get(key)
		if err != nil || !ok {
			bad = err
			return bad == nil
		}
		if key[0] == tableOldEntry {
			e, err := decodeOldEntry(tree, key, v)
			bad = err
			return bad == nil && entry(e)
		}
		s, err := decodeSaved(key, v)
		bad = err
		return bad == nil && saved(s)
	})
	if err == nil {
		err = bad
	}
	return err
}

func numberedKey(table byte, ino Ino, number uint64) []byte {
	return binary.BigEndian.AppendUint64(inoKey(table, ino), number)
}

func oldEntryKey(parent Ino, name string, checkpoint uint64) []byte {
	k := append(inoKey(tableOldEntry, parent), name...)
	return binary.BigEndian.AppendUint64(append(k, 0), checkpoint)
}

func journalKey(tree Ino, checkpoint uint64, of []byte) []byte {
	return append(numberedKey(tableJournal, tree, checkpoint), of...)
}

func (s *Saved) encode() []byte {
	e := newEncoder(96)
	e.uint(uint64(s.Tree))
	e.string(s.Path)
	e.uint(s.Gen)
	e.int(s.Size)
	e.uint(uint64(s.Mode))
	e.int(s.Mtime)
	e.stamp(s.Stamp)
	e.int(s.At)
	e.string(s.File)
	e.bools(s.Kept)
	return e.b
}

func decodeSaved(k, v []byte) (Saved, error) {
	if len(k) != 17 {
		return Saved{}, errCorrupt
	}
	d := newDecoder(v)
	s := Saved{Ino: keyIno(k), Checkpoint: binary.BigEndian.Uint64(k[9:]), Tree: Ino(d.uint()), Path: d.string(),
		Gen: d.uint(), Size: d.int(), Mode: uint32(d.uint()), Mtime: d.int(), Stamp: d.stamp(), At: d.int(), File: d.string()}
	d.bools(&s.Kept)
	return s, d.err(fmt.Sprintf("saved content of inode %d", s.Ino))
}

func decodeOldEntry(tree Ino, k, v []byte) (OldEntry, error) {
	if len(k) < 18 {
		return OldEntry{}, errCorrupt
	}
	d := newDecoder(v)
	e := OldEntry{Tree: tree, Parent: keyIno(k), Name: string(k[9 : len(k)-9]), Checkpoint: binary.BigEndian.Uint64(k[len(k)-8:]),
		Ino: Ino(d.uint()), Type: uint32(d.uint())}
	return e, d.err(fmt.Sprintf("earlier entry %q", e.Name))
}
