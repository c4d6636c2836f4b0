package fusefs

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
)

// An openBudget bounds the content files that are open at once. Each takes one
// descriptor of this process, or two where it is written through the process:
// without the bound a machine that opens all it can would leave none to open
// the files of others.
type openBudget struct {
	most, mostEach int // of all trees and of one

	mu     sync.Mutex // protects what follows
	all    int
	byTree map[index.Ino]int
}

// shareOfTree is the part of all open files that one tree may have.
const shareOfTree = 8

// newOpenBudget leaves a quarter of the descriptors for all else.
func newOpenBudget(o Options) *openBudget {
	b := &openBudget{most: o.maxOpen, byTree: make(map[index.Ino]int)}
	if b.most == 0 {
		limit := unix.Rlimit{Cur: 1024}
		unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) // cannot fail with these arguments
		b.most = int(min(limit.Cur, 1<<30) / 8 * 3)
	}
	b.mostEach = b.most
	if !o.WholeBucket { // which is one tree
		b.mostEach = b.most / shareOfTree
	}
	return b
}

// take counts one more for a tree, or refuses it.
func (b *openBudget) take(tree index.Ino) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all >= b.most || b.byTree[tree] >= b.mostEach {
		return syscall.ENFILE
	}
	b.all++
	b.byTree[tree]++
	return nil
}

func (b *openBudget) giveBack(tree index.Ino) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.byTree[tree]--; b.byTree[tree] == 0 {
		delete(b.byTree, tree)
	}
}
