package index

import (
	"encoding/binary"
	"fmt"
)

// An Unsynced says that the content file of an inode may not be on the disk yet
// as the index has it. Without such a record, and without an OpenMark, it is.
type Unsynced struct {
	Seq uint64 // of this record, never used twice; set by MarkUnsynced

	// Old is the content file of what this content took the place of, kept until
	// this one is on the disk: another inode's after a rename, the inode's own
	// number when it was truncated (the cache has a place for that). 0 = none.
	Old Ino
}

// MarkUnsynced notes that the content file of an inode may not be on the disk.
func (b *Batch) MarkUnsynced(ino Ino, u Unsynced) {
	e := newEncoder(16)
	e.uint(b.db.newSeq())
	e.uint(uint64(u.Old))
	b.set(inoKey(tableUnsynced, ino), e.b)
}

// ClearUnsynced notes that it is, or that nothing is known of the inode any more.
func (b *Batch) ClearUnsynced(ino Ino) { b.delete(inoKey(tableUnsynced, ino)) }

// Unsynced returns the record of an inode, if there is one.
func (db *DB) Unsynced(ino Ino) (u Unsynced, ok bool, err error) {
	v, ok, err := db.get(inoKey(tableUnsynced, ino))
	if err != nil || !ok {
		return Unsynced{}, false, err
	}
	u, err = decodeUnsynced(ino, v)
	return u, err == nil, err
}

// AllUnsynced returns all records.
func (db *DB) AllUnsynced() (map[Ino]Unsynced, error) {
	out := make(map[Ino]Unsynced)
	var bad error
	err := db.scan([]byte{tableUnsynced}, nil, func(k, v []byte) bool {
		ino := Ino(binary.BigEndian.Uint64(k[1:]))
		out[ino], bad = decodeUnsynced(ino, v)
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	return out, err
}

func decodeUnsynced(ino Ino, v []byte) (Unsynced, error) {
	d := newDecoder(v)
	u := Unsynced{Seq: d.uint(), Old: Ino(d.uint())}
	return u, d.err(fmt.Sprintf("unsynced %d", ino))
}

// Dirs returns up to limit directories with numbers above a given one that were
// listed, in the order of their numbers, and the last number looked at.
func (db *DB) Dirs(after Ino, limit int) (dirs []Ino, last Ino, err error) {
	var bad error
	last = after
	err = db.scan([]byte{tableInode}, inoKey(tableInode, after+1), func(k, v []byte) bool {
		var n Inode
		last = Ino(binary.BigEndian.Uint64(k[1:]))
		if n, bad = decodeInode(last, v); bad != nil {
			return false
		}
		if n.IsDir() && n.Listed != 0 {
			dirs = append(dirs, n.Ino)
		}
		return len(dirs) < limit
	})
	if err == nil {
		err = bad
	}
	return dirs, last, err
}
