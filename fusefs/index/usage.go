package index

import (
	"errors"
	"io/fs"
	"slices"
)

// A Usage is what a tree holds: the apparent bytes of its regular files, each
// counted once however many names it has, and its inodes of every type but the
// root.
type Usage struct{ Bytes, Files int64 }

// Plus returns the sum of two.
func (u Usage) Plus(v Usage) Usage { return Usage{u.Bytes + v.Bytes, u.Files + v.Files} }

// minus returns the difference.
func (u Usage) minus(v Usage) Usage { return Usage{u.Bytes - v.Bytes, u.Files - v.Files} }

// usage is what an inode adds to its tree.
func (n *Inode) usage() Usage {
	switch {
	case n.Mode == 0 || n.Ino == n.Tree:
		return Usage{}
	case n.IsFile():
		return Usage{n.Size, 1}
	}
	return Usage{0, 1}
}

// countedSetting says that the usage records were made: not so in an index just made.
const countedSetting = "usage"

// loadUsage reads what each tree holds, counting it if that was never done.
func (db *DB) loadUsage() error {
	counted, err := db.Setting(countedSetting)
	if err != nil {
		return err
	}
	if counted == 0 {
		return db.recountUsage()
	}
	var bad error
	err = db.scan([]byte{tableUsage}, nil, func(k, v []byte) bool {
		d := newDecoder(v)
		u := Usage{d.int(), d.int()}
		db.book.load(keyIno(k), u)
		bad = d.err("usage of a tree")
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	return err
}

// recountUsage writes the usage records anew.
func (db *DB) recountUsage() error {
	all, err := db.CountUsage()
	if err != nil {
		return err
	}
	return db.Update(func(b *Batch) error {
		for tree, u := range all {
			b.putUsage(tree, u)
			db.book.load(tree, u)
		}
		b.PutSetting(countedSetting, 1)
		return nil
	})
}

// CountUsage looks at every inode and returns what each tree holds. It is what
// StoredUsage knows without looking; a difference is a bug.
func (db *DB) CountUsage() (map[Ino]Usage, error) {
	all := make(map[Ino]Usage)
	var bad error
	err := db.scan([]byte{tableInode}, nil, func(k, v []byte) bool {
		var n Inode
		if n, bad = decodeInode(keyIno(k), v); bad == nil {
			all[n.Tree] = all[n.Tree].Plus(n.usage())
		}
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	return all, err
}

func (b *Batch) putUsage(tree Ino, u Usage) {
	e := newEncoder(16)
	e.int(u.Bytes)
	e.int(u.Files)
	b.set(inoKey(tableUsage, tree), e.b)
}

// A usageChange is what a batch does to an inode's part in its tree's usage.
type usageChange struct {
	ino, tree Ino
	delta     Usage
	size      int64 // of the record from now on
}

// countUsage finds out what the batch changes, and writes the new usage of each
// tree that it concerns.
func (b *Batch) countUsage() ([]usageChange, error) {
	var changes []usageChange
	trees := make(map[Ino]Usage, 1)
	seen := make(map[Ino]bool, 8)
	for i := len(b.inodes) - 1; i >= 0; i-- { // the last word on an inode counts
		n := &b.inodes[i]
		if seen[n.Ino] {
			continue
		}
		seen[n.Ino] = true
		old, err := b.before(n.Ino)
		if err != nil {
			return nil, err
		}
		c := usageChange{ino: n.Ino, tree: n.Tree, delta: n.usage().minus(old.usage()), size: n.usage().Bytes}
		if n.Mode == 0 {
			c.tree = old.Tree
		}
		if c.delta != (Usage{}) {
			changes = append(changes, c)
			trees[c.tree] = trees[c.tree].Plus(c.delta)
		}
	}
	for tree, delta := range trees {
		if delta != (Usage{}) {
			b.putUsage(tree, b.db.book.stored(tree).Plus(delta))
		}
	}
	return changes, nil
}

// before returns an inode as the batch finds it; Mode is 0 when it is not there.
func (b *Batch) before(ino Ino) (Inode, error) {
	if slices.Contains(b.added, ino) {
		return Inode{}, nil
	}
	n, err := b.db.Inode(ino)
	if errors.Is(err, fs.ErrNotExist) {
		return Inode{}, nil
	}
	return n, err
}
