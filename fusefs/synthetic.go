package fusefs

import (
	"sort"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/hanwen/go-fuse/v2/fuse"

	"berth/fusefs/index"
)

// A synthNode is a directory that only this process knows, or the place of a
// tree's root below one. It is made once and never goes.
type synthNode struct {
	ino      index.Ino // below index.FirstIno; of a tree's root its index number
	parent   index.Ino
	children map[string]*synthNode
}

// A synthTable has the synthetic nodes: the root and the ancestors of trees in a
// mount that is not of the whole bucket, and the mount points inside trees.
type synthTable struct {
	mu    sync.RWMutex // protects the fields below
	nodes map[index.Ino]*synthNode
	last  index.Ino
}

// init makes the root.
func (t *synthTable) init() {
	t.last = index.RootIno
	t.nodes = map[index.Ino]*synthNode{index.RootIno: {ino: index.RootIno, parent: index.RootIno}}
}

// isSynth says whether an inode is a synthetic node.
func (t *synthTable) isSynth(ino index.Ino) bool {
	if ino >= index.FirstIno {
		return false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.nodes[ino] != nil
}

// child returns the synthetic node, or tree root, of a name in a directory,
// which may be an inode of the index; ok is false when the name is none.
func (t *synthTable) child(parent index.Ino, name string) (ino index.Ino, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := t.nodes[parent]
	if n == nil {
		return 0, false
	}
	c := n.children[name]
	if c == nil {
		return 0, false
	}
	return c.ino, true
}

// A synthEntry is a synthetic name in a directory.
type synthEntry struct {
	name string
	ino  index.Ino
}

// list returns the synthetic names of a directory, sorted.
func (t *synthTable) list(parent index.Ino) []synthEntry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := t.nodes[parent]
	if n == nil {
		return nil
	}
	out := make([]synthEntry, 0, len(n.children))
	for name, c := range n.children {
		out = append(out, synthEntry{name, c.ino})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
}

// parentOf returns the directory that a synthetic node or a tree's root is in.
func (t *synthTable) parentOf(ino index.Ino) index.Ino {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n := t.nodes[ino]; n != nil {
		return n.parent
	}
	return index.RootIno
}

// A synthName is a name that became synthetic, for the kernel to forget what it
// knew of it.
type synthName struct {
	parent index.Ino
	name   string
}

// add makes the nodes of a path below a directory that are missing. leaf, if not
// zero, is the tree root that the last name stands for. It returns the first
// name that is new: the kernel may know something else under it.
func (t *synthTable) add(top index.Ino, path string, leaf index.Ino) (first synthName, added bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.nodes[top]
	if at == nil {
		at = &synthNode{ino: top, parent: index.RootIno}
		t.nodes[top] = at
	}
	parts := strings.Split(path, "/")
	for i, name := range parts {
		next := at.children[name]
		if next == nil {
			next = &synthNode{parent: at.ino}
			if i == len(parts)-1 && leaf != 0 {
				next.ino = leaf
			} else {
				t.last++
				next.ino = t.last
			}
			if !added {
				first, added = synthName{at.ino, name}, true
			}
			if at.children == nil {
				at.children = make(map[string]*synthNode)
			}
			at.children[name] = next
			if t.nodes[next.ino] == nil {
				t.nodes[next.ino] = next
			} else {
				t.nodes[next.ino].parent = at.ino // mount points came before the tree
			}
		}
		at = next
	}
	return first, added
}

// guardName refuses to remove or replace a name that is synthetic, or to change
// anything in a synthetic directory.
func (f *FS) guardName(parent index.Ino, name string) error {
	if _, ok := f.synth.child(parent, name); ok {
		return syscall.EBUSY
	}
	if f.synth.isSynth(parent) {
		return syscall.EROFS
	}
	if f.hidden(parent, name) {
		return syscall.EPERM
	}
	return nil
}

// guardNew is guardName for a name to be made.
func (f *FS) guardNew(parent index.Ino, name string) error {
	if _, ok := f.synth.child(parent, name); ok {
		return syscall.EEXIST
	}
	if err := f.guardName(parent, name); err != nil {
		return err
	}
	return checkName(name)
}

// hidden says whether a name of the bucket is never projected.
func (f *FS) hidden(parent index.Ino, name string) bool {
	return parent == index.RootIno && name == ownPrefix && f.opts.WholeBucket
}

// checkName refuses what cannot be part of a key.
func checkName(name string) error {
	switch {
	case len(name) > maxName:
		return syscall.ENAMETOOLONG
	case !utf8.ValidString(name):
		return syscall.EILSEQ
	}
	return nil
}

// synthAttr fills in the attributes of a synthetic node. It is shown as writable,
// so that the answer to a write is EROFS and not EACCES.
func (f *FS) synthAttr(ino index.Ino, a *fuse.Attr) {
	a.Ino = uint64(ino)
	a.Mode = index.TypeDir | defaultPerms
	if ino == index.RootIno {
		// Trees are reached through binds of themselves. From the top they are for
		// their owner alone, whatever modes the files in them have.
		a.Mode = index.TypeDir | 0o700
	}
	a.Nlink = 1
	a.Blksize = blockSize
	if o := f.opts.Owner; o != nil {
		a.Uid, a.Gid = o.UID, o.GID
	}
	at := f.started
	a.SetTimes(&at, &at, &at)
}
