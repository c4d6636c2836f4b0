package index

import "sync"

// An inodeCache keeps decoded inodes. A reader that missed may fill in what it
// read only if no commit began or ended since, so that it cannot put back an
// inode that a commit has just replaced.
type inodeCache struct {
	limit int

	mu    sync.RWMutex // protects the fields below
	seq   uint64       // grows when a commit begins and when it ends
	young map[Ino]Inode
	old   map[Ino]Inode // the generation before: what is not touched again is dropped
}

func newInodeCache(limit int) *inodeCache {
	return &inodeCache{limit: limit / 2, young: make(map[Ino]Inode)}
}

// get returns an inode, or the sequence to hand to fill.
func (c *inodeCache) get(ino Ino) (n Inode, seq uint64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if n, ok = c.young[ino]; ok {
		return n, c.seq, true
	}
	n, ok = c.old[ino]
	return n, c.seq, ok
}

func (c *inodeCache) fill(n Inode, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if seq == c.seq {
		c.putLocked(n)
	}
}

func (c *inodeCache) begin() {
	c.mu.Lock()
	c.seq++
	c.mu.Unlock()
}

func (c *inodeCache) end(written []Inode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	for _, n := range written {
		if n.Mode == 0 {
			delete(c.young, n.Ino)
			delete(c.old, n.Ino)
		} else {
			c.putLocked(n)
		}
	}
}

func (c *inodeCache) putLocked(n Inode) {
	if len(c.young) >= c.limit {
		c.old, c.young = c.young, make(map[Ino]Inode)
	}
	c.young[n.Ino] = n
}
