package index

import "sync"

// A book is what the index knows in memory of the usage of trees. A tree's total
// is what its records say, but for a file that is open for writing, or open
// without a name, the size that was last told counts: its live size.
//
// The sum of several trees, such as those of a workspace, has an account too.
type book struct {
	mu    sync.Mutex // protects the fields below; no other lock is taken under it
	trees map[Ino]*account
	sums  map[string]*account
	live  map[Ino]*liveSize
}

// An account is the usage of a tree or of a sum of trees.
type account struct {
	stored Usage // as the records have it, of a tree only
	total  Usage // with live sizes
	limit  Usage // zero = none
	sum    *account
}

// A liveSize stands for the size in the record of an inode.
type liveSize struct {
	tree   Ino
	size   int64
	stored int64 // in the record; 0 when there is none
}

func (k *book) init() {
	k.trees = make(map[Ino]*account)
	k.sums = make(map[string]*account)
	k.live = make(map[Ino]*liveSize)
}

func (k *book) accountLocked(tree Ino) *account {
	a := k.trees[tree]
	if a == nil {
		a = &account{}
		k.trees[tree] = a
	}
	return a
}

// add changes the total of an account and of the sum that it is in.
func (a *account) add(u Usage) {
	a.total = a.total.Plus(u)
	if a.sum != nil {
		a.sum.total = a.sum.total.Plus(u)
	}
}

// room returns what may still be added; no bound is as much as a number can say.
func (a *account) room() Usage {
	r := Usage{room(a.limit.Bytes, a.total.Bytes), room(a.limit.Files, a.total.Files)}
	if a.sum != nil {
		s := a.sum.room()
		r = Usage{min(r.Bytes, s.Bytes), min(r.Files, s.Files)}
	}
	return r
}

func room(limit, used int64) int64 {
	if limit == 0 {
		return NoLimit
	}
	return limit - used
}

// load sets what the records say of a tree.
func (k *book) load(tree Ino, u Usage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.accountLocked(tree)
	a.add(u.minus(a.stored))
	a.stored = u
}

func (k *book) stored(tree Ino) Usage {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.accountLocked(tree).stored
}

// apply takes over what a commit has changed, and the files that it opened.
func (k *book) apply(changes []usageChange, opened []opened) {
	if len(changes)+len(opened) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range changes {
		a := k.accountLocked(c.tree)
		a.stored = a.stored.Plus(c.delta)
		if l := k.live[c.ino]; l != nil {
			a.add(Usage{l.stored - c.size, 0})
			l.stored = c.size
		}
		a.add(c.delta)
	}
	for _, o := range opened {
		k.openLocked(o.ino, o.liveSize)
	}
}

func (k *book) openLocked(ino Ino, l liveSize) {
	if k.live[ino] == nil {
		k.live[ino] = &l
		k.accountLocked(l.tree).add(Usage{l.size - l.stored, 0})
	}
}

func (k *book) resizeLocked(l *liveSize, size int64) {
	k.accountLocked(l.tree).add(Usage{size - l.size, 0})
	l.size = size
}

// NoLimit is the room where there is no limit.
const NoLimit = 1<<63 - 1

// SetLimit sets what a tree may hold, and which sum of trees it is part of ("" =
// none) with the limit of that; a zero is no limit. Limits bind only those who
// ask for room.
func (db *DB) SetLimit(tree Ino, limit Usage, sum string, sumLimit Usage) {
	k := &db.book
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.accountLocked(tree)
	a.limit = limit
	if sum == "" || a.sum != nil {
		return
	}
	if k.sums[sum] == nil {
		k.sums[sum] = &account{}
	}
	a.sum = k.sums[sum]
	a.sum.limit = sumLimit
	a.sum.total = a.sum.total.Plus(a.total)
}

// Usage returns what a tree holds at this moment, with its limit, and what may
// still be added to it, which its sum may bound too. Room is below zero when
// more is there than may be.
func (db *DB) Usage(tree Ino) (total, limit, room Usage) {
	k := &db.book
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.accountLocked(tree)
	return a.total, a.limit, a.room()
}

// StoredUsage returns what a tree holds by its records.
func (db *DB) StoredUsage(tree Ino) Usage { return db.book.stored(tree) }

// CountOpen has an inode that has, or soon will have, no record count by its live
// size until EndOpen; if it does so already nothing changes. Batch.CountOpen is
// for an inode with a record.
func (db *DB) CountOpen(ino, tree Ino, size int64) {
	k := &db.book
	k.mu.Lock()
	defer k.mu.Unlock()
	k.openLocked(ino, liveSize{tree: tree, size: size})
}

// EndOpen has an inode count by its record again.
func (db *DB) EndOpen(ino Ino) {
	k := &db.book
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.live[ino]; l != nil {
		k.resizeLocked(l, l.stored)
		delete(k.live, ino)
	}
}

// Resize tells the live size of an inode.
func (db *DB) Resize(ino Ino, size int64) {
	k := &db.book
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.live[ino]; l != nil {
		k.resizeLocked(l, size)
	}
}

// Grow asks for room for an inode to have a size. It returns the size that is
// granted, at most the one asked for and never less than the live size, and
// counts it.
func (db *DB) Grow(ino Ino, size int64) int64 { return db.book.grow(ino, size, false) }

// GrowTo is Grow for all or nothing.
func (db *DB) GrowTo(ino Ino, size int64) bool { return db.book.grow(ino, size, true) == size }

func (k *book) grow(ino Ino, size int64, whole bool) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.live[ino]
	if l == nil || size <= l.size {
		return size
	}
	granted := l.size + min(size-l.size, max(0, k.accountLocked(l.tree).room().Bytes))
	if granted == size || !whole {
		k.resizeLocked(l, granted)
	}
	return granted
}
