package index

import "sync"

// A recent keeps decoded records of one kind that were used last. A reader that
// missed may fill in what it read only if no commit began or ended since, so that
// it cannot put back what a commit has just replaced.
type recent[K comparable, V any] struct {
	limit int

	mu    sync.RWMutex // protects the fields below
	seq   uint64       // grows when a commit begins and when it ends
	young map[K]V
	old   map[K]V // the generation before: what is not put again is dropped
}

func newRecent[K comparable, V any](limit int) *recent[K, V] {
	return &recent[K, V]{limit: limit / 2, young: make(map[K]V)}
}

// get returns a record, or the sequence to hand to fill.
func (c *recent[K, V]) get(k K) (v V, seq uint64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if v, ok = c.young[k]; ok {
		return v, c.seq, true
	}
	v, ok = c.old[k]
	return v, c.seq, ok
}

func (c *recent[K, V]) fill(k K, v V, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if seq == c.seq {
		c.putLocked(k, v)
	}
}

// begin is called before a commit, end after it with what brings the records up to
// date.
func (c *recent[K, V]) begin() {
	c.mu.Lock()
	c.seq++
	c.mu.Unlock()
}

func (c *recent[K, V]) end(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	do()
}

func (c *recent[K, V]) putLocked(k K, v V) {
	if len(c.young) >= c.limit {
		c.old, c.young = c.young, make(map[K]V)
	}
	c.young[k] = v
}

func (c *recent[K, V]) dropLocked(k K) {
	delete(c.young, k)
	delete(c.old, k)
}

// A linking is one Link or Unlink of a batch.
type linking struct {
	name  Name
	entry Entry // Ino 0 = gone
	ino   Ino
	dir   bool
}

// beginCommit and endCommit keep the records in memory in step with a commit;
// after one that failed nothing has changed.
func (b *Batch) beginCommit() {
	b.db.inodes.begin()
	b.db.entries.begin()
	b.db.names.begin()
}

func (b *Batch) endCommit(failed bool) {
	if failed {
		b.inodes, b.linked = nil, nil
	}
	db := b.db
	db.inodes.end(func() {
		for _, n := range b.inodes {
			if n.Mode == 0 {
				db.inodes.dropLocked(n.Ino)
			} else {
				db.inodes.putLocked(n.Ino, n)
			}
		}
	})
	db.entries.end(func() {
		for _, l := range b.linked {
			db.entries.putLocked(l.name, l.entry)
		}
	})
	db.names.end(b.endNamesLocked)
}

// endNamesLocked keeps the names of inodes that have one: certain when the batch
// gave an inode one name that it says is its only one.
func (b *Batch) endNamesLocked() {
	names := b.db.names
	given := make(map[Ino][]Name, len(b.linked))
	for _, l := range b.linked {
		if l.dir {
			continue
		}
		names.dropLocked(l.ino)
		if l.entry.Ino != 0 {
			given[l.ino] = append(given[l.ino], l.name)
		}
	}
	for _, n := range b.inodes { // the last write of an inode counts
		switch only := given[n.Ino]; {
		case n.Links != 1:
			names.dropLocked(n.Ino)
		case len(only) == 1 && !n.IsDir():
			names.putLocked(n.Ino, only[0])
		}
	}
}
