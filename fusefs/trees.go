package fusefs

import (
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"

	"berth/fusefs/index"
)

// Type bits and special bits of a mode.
const (
	modeSetgid   = 0o2000
	permMask     = 0o7777
	maxName      = 255
	maxKey       = 1024
	ownPrefix    = ".berth" // of the bucket: berth's own, never projected
	defaultPerms = 0o755
)

// A treeTable knows the prefix of each tree by its root.
type treeTable struct {
	mu       sync.RWMutex // protects prefixes
	prefixes map[index.Ino]string
}

func (t *treeTable) set(root index.Ino, prefix string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.prefixes == nil {
		t.prefixes = make(map[index.Ino]string)
	}
	t.prefixes[root] = prefix
}

// prefix returns what the keys of a tree begin with; ok is false for what is no
// root of a tree.
func (t *treeTable) prefix(root index.Ino) (string, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p, ok := t.prefixes[root]
	return p, ok
}

// all returns the prefixes by root.
func (t *treeTable) all() map[index.Ino]string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return maps.Clone(t.prefixes)
}

// loadTrees reads the trees of the index, and makes the one of the whole bucket.
// An index that served the other kind of mount is refused.
func (f *FS) loadTrees() error {
	trees, err := f.db.Trees()
	if err != nil {
		return err
	}
	_, whole := trees[""]
	if len(trees) > 0 && whole != f.opts.WholeBucket {
		return fmt.Errorf("cannot use state %s: it belongs to the other kind of mount (whole bucket: %v): %w",
			f.opts.StateDir, whole, fs.ErrInvalid)
	}
	for prefix, root := range trees {
		f.trees.set(root, prefix)
		f.limitTree(root, prefix)
	}
	if f.opts.WholeBucket && !whole {
		return f.makeTree("", index.RootIno)
	}
	return nil
}

// makeTree writes the root directory of a tree.
func (f *FS) makeTree(prefix string, root index.Ino) error {
	err := f.db.Update(func(b *index.Batch) error {
		now := f.now().UnixNano()
		b.PutInode(index.Inode{Ino: root, Tree: root, Mode: index.TypeDir | defaultPerms, Mtime: now, Ctime: now, Links: 1})
		b.PutTree(prefix, root)
		return nil
	})
	if err == nil {
		f.trees.set(root, prefix)
		f.limitTree(root, prefix)
	}
	return err
}

// treeName is what changes call a tree: its prefix without the slash.
func treeName(prefix string) string { return strings.TrimSuffix(prefix, "/") }

// dirPrefix returns what the keys below a directory begin with.
func (f *FS) dirPrefix(dir *index.Inode) (string, error) {
	prefix, ok := f.trees.prefix(dir.Tree)
	if !ok {
		return "", errStale
	}
	path, err := f.db.Dir(dir.Ino)
	if err != nil || path == "" {
		return prefix, err
	}
	return prefix + path + "/", nil
}
