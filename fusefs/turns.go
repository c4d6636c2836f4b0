package fusefs

import (
	"sync"

	"berth/fusefs/index"
)

// A turnTable keeps the callers of one tree from making a line for the lock of
// the namespace: of each tree one at a time stands in it, and the next in the line
// gets what is given up, who comes later does not. A storm in one tree then costs
// the others the time of one change each, however many callers it has.
type turnTable struct {
	mu    sync.Mutex // protects the fields below
	trees map[index.Ino]*sync.Mutex
	taken bool            // somebody is at the head
	line  []chan struct{} // of those behind; closed when they are
}

// run does something when it is a tree's turn.
func (t *turnTable) run(tree index.Ino, do func() error) error {
	turn := t.of(tree)
	turn.Lock()
	defer turn.Unlock()
	t.enter()
	defer t.leave()
	return do()
}

func (t *turnTable) enter() {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return
	}
	ready := make(chan struct{})
	t.line = append(t.line, ready)
	t.mu.Unlock()
	<-ready
}

func (t *turnTable) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.line) == 0 {
		t.taken = false
		return
	}
	close(t.line[0])
	t.line = t.line[1:]
}

// of returns the lock of a tree's turn. It is held over index.DB.Update alone.
func (t *turnTable) of(tree index.Ino) *sync.Mutex {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn := t.trees[tree]
	if turn == nil {
		if t.trees == nil {
			t.trees = make(map[index.Ino]*sync.Mutex)
		}
		turn = new(sync.Mutex)
		t.trees[tree] = turn
	}
	return turn
}

// updateFor is update for a caller who changes something in the tree of an inode.
func (f *FS) updateFor(ino index.Ino, do func(t *txn) error) error {
	n, err := f.inode(ino)
	if err != nil {
		return f.update(do) // which finds out what that means
	}
	return f.change(do, func(commit func(*index.Batch) error) error {
		return f.turns.run(n.Tree, func() error { return f.db.Update(commit) })
	})
}
