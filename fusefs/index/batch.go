package index

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// A Batch collects the writes of one Update; they take effect together. Its
// methods may be called in any order, from the function given to Update only.
type Batch struct {
	db      *DB
	batch   *pebble.Batch
	inodes  []Inode       // to bring what is in memory up to date; Mode 0 = deleted
	linked  []linking     // likewise, in their order
	tallies map[Ino]tally // of the directories that Link and Unlink changed
	added   []Ino         // of the inodes those without a record before
	opened  []opened
}

// An opened inode counts by its live size from the commit on.
type opened struct {
	ino Ino
	liveSize
}

func (b *Batch) set(key, value []byte) { b.batch.Set(key, value, nil) } // fails only after Close
func (b *Batch) delete(key []byte)     { b.batch.Delete(key, nil) }

// PutInode writes an inode as a whole.
func (b *Batch) PutInode(n Inode) {
	b.set(inoKey(tableInode, n.Ino), n.encode())
	b.inodes = append(b.inodes, n)
}

// AddInode is PutInode of an inode that was never written before this batch: its
// record need not be looked for.
func (b *Batch) AddInode(n Inode) {
	b.PutInode(n)
	b.added = append(b.added, n.Ino)
}

// DeleteInode removes an inode, its queue entry and all marks. Its
// names must be gone or go in the same batch.
func (b *Batch) DeleteInode(ino Ino) {
	for _, table := range []byte{tableInode, tableQueue, tableOpen, tableOrphan, tableUnsynced, tableDigests} {
		b.delete(inoKey(table, ino))
	}
	b.inodes = append(b.inodes, Inode{Ino: ino})
}

// Link writes the directory entry of an inode, and its way back unless it is a
// directory, whose Parent and Name the caller sets. typ is the type bits, or 0
// when a LIST cannot tell (Entry.Type).
func (b *Batch) Link(parent Ino, name string, ino Ino, typ uint32) {
	e := newEncoder(16)
	e.uint(uint64(ino))
	e.uint(uint64(typ))
	b.set(entryKey(parent, name), e.b)
	b.linked = append(b.linked, linking{Name{parent, name}, Entry{name, ino, typ}, ino, typ == TypeDir})
	below := 1 + len(name)
	if typ == TypeDir {
		below += b.below(ino)
		b.tally(parent, 1, below)
	} else {
		b.set(nameKey(ino, parent, name), nil)
		b.tally(parent, 0, below)
	}
}

// Unlink removes a directory entry and its way back; typ is as for Link. Inode
// and Remote records are the caller's.
func (b *Batch) Unlink(parent Ino, name string, ino Ino, typ uint32) {
	b.delete(entryKey(parent, name))
	b.linked = append(b.linked, linking{Name{parent, name}, Entry{}, ino, typ == TypeDir})
	if typ == TypeDir {
		b.tally(parent, -1, 0)
	} else {
		b.delete(nameKey(ino, parent, name))
	}
}

// PutRemote writes what is known under a key; a Doomed one enters the doom list,
// any other leaves it.
func (b *Batch) PutRemote(r Remote) {
	b.holds(r)
	b.set(stringKey(tableRemote, r.Key), r.encode())
	if r.Doomed {
		b.set(stringKey(tableDoom, r.Key), nil)
	} else {
		b.delete(stringKey(tableDoom, r.Key))
	}
}

// DeleteRemote forgets what is known under a key, and its doom.
func (b *Batch) DeleteRemote(key string) {
	b.unhold(key, 0)
	b.delete(stringKey(tableRemote, key))
	b.delete(stringKey(tableDoom, key))
}

// Enqueue puts an inode into the upload queue; at is Unix time in nanoseconds.
func (b *Batch) Enqueue(ino Ino, at int64) {
	b.set(inoKey(tableQueue, ino), binary.BigEndian.AppendUint64(nil, uint64(at)))
}

// Dequeue takes an inode out of the upload queue.
func (b *Batch) Dequeue(ino Ino) { b.delete(inoKey(tableQueue, ino)) }

// MarkOpen notes that an inode may be written to from now on.
func (b *Batch) MarkOpen(ino Ino, m OpenMark) { b.set(inoKey(tableOpen, ino), m.encode()) }

// CountOpen has an inode count by its live size, which is that of its record at
// first, from the commit on until DB.EndOpen; if it does so already nothing
// changes. gone says that the batch deletes the record.
func (b *Batch) CountOpen(n *Inode, gone bool) {
	l := liveSize{tree: n.Tree, size: n.Size, stored: n.Size}
	if gone {
		l.stored = 0
	}
	b.opened = append(b.opened, opened{n.Ino, l})
}

// ClearOpen removes the mark.
func (b *Batch) ClearOpen(ino Ino) { b.delete(inoKey(tableOpen, ino)) }

// MarkOrphan notes an inode without a name that is still open; DeleteInode ends it.
func (b *Batch) MarkOrphan(ino Ino) { b.set(inoKey(tableOrphan, ino), nil) }

// AddMove notes that the objects of a renamed directory have to follow.
func (b *Batch) AddMove(oldPrefix string, dir Ino) {
	e := newEncoder(len(oldPrefix) + 12)
	e.string(oldPrefix)
	e.uint(uint64(dir))
	b.set(inoKey(tableMove, Ino(b.db.newSeq())), e.b)
}

// DeleteMove ends a move.
func (b *Batch) DeleteMove(seq uint64) { b.delete(inoKey(tableMove, Ino(seq))) }

// PutTree names the root of the tree with a prefix.
func (b *Batch) PutTree(prefix string, root Ino) {
	b.set(stringKey(tableTree, prefix), binary.BigEndian.AppendUint64(nil, uint64(root)))
}

// DeleteTree forgets a tree's name; its inodes are the caller's.
func (b *Batch) DeleteTree(prefix string) { b.delete(stringKey(tableTree, prefix)) }

// PutSetting keeps a number under a name; "ino" is the index's own.
func (b *Batch) PutSetting(name string, v uint64) {
	b.set(settingKey(name), binary.BigEndian.AppendUint64(nil, v))
}

// PutText keeps a string under a name.
func (b *Batch) PutText(name, v string) { b.set(settingKey("text/"+name), []byte(v)) }

func (b *Batch) commit() error {
	if err := b.putTallies(); err != nil {
		return err
	}
	if b.batch.Empty() {
		return nil
	}
	changes, err := b.countUsage()
	if err != nil {
		return err
	}
	b.beginCommit()
	err = b.db.apply(b.batch)
	b.endCommit(err != nil)
	if err != nil {
		return fmt.Errorf("cannot write index: %w", err)
	}
	b.db.book.apply(changes, b.opened)
	return nil
}
