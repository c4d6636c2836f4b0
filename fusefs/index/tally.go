package index

import (
	"errors"
	"io/fs"
	"slices"
)

// UnknownBelow is the Below of a directory under which something was never listed.
const UnknownBelow = 1 << 16

// A tally is what a batch does to what a directory knows of its entries.
type tally struct {
	subdirs int // directories more
	below   int // the longest path below it that the batch made
}

func (b *Batch) tally(dir Ino, subdirs, below int) {
	if b.tallies == nil {
		b.tallies = make(map[Ino]tally, 2)
	}
	t := b.tallies[dir]
	b.tallies[dir] = tally{t.subdirs + subdirs, max(t.below, below)}
}

// below returns the Below of a directory, 0 of one that is written later.
func (b *Batch) below(dir Ino) int {
	n, err := b.inode(dir)
	if err != nil {
		return 0
	}
	return int(n.Below)
}

// putTallies writes what Link and Unlink changed into the inodes as this batch
// leaves them.
func (b *Batch) putTallies() error {
	for dir, t := range b.tallies {
		if t.subdirs != 0 {
			if _, err := b.alter(dir, func(n *Inode) bool {
				n.Subdirs = uint32(max(int64(n.Subdirs)+int64(t.subdirs), 0))
				return true
			}); err != nil {
				return err
			}
		}
		if t.below > 0 {
			if err := b.reach(dir, t.below); err != nil {
				return err
			}
		}
	}
	return nil
}

// reach has a directory and those above it know of a path below it. It ends where
// a longer one is known, and so mostly at once.
func (b *Batch) reach(dir Ino, below int) error {
	for dir != 0 {
		grew := false
		n, err := b.alter(dir, func(n *Inode) bool {
			grew = below > int(n.Below)
			n.Below = max(n.Below, uint32(min(below, UnknownBelow)))
			return grew
		})
		if err != nil || !grew {
			return err
		}
		dir, below = n.Parent, below+1+len(n.Name)
	}
	return nil
}

// alter changes an inode as this batch leaves it, if it is there and do says so.
func (b *Batch) alter(ino Ino, do func(n *Inode) bool) (Inode, error) {
	n, err := b.inode(ino)
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err == nil && do(&n) {
		b.PutInode(n)
	}
	return n, err
}

// inode returns an inode as this batch leaves it.
func (b *Batch) inode(ino Ino) (Inode, error) {
	for _, n := range slices.Backward(b.inodes) {
		if n.Ino == ino && n.Mode == 0 {
			return n, fs.ErrNotExist
		}
		if n.Ino == ino {
			return n, nil
		}
	}
	return b.db.Inode(ino)
}
