package fusefs

import (
	"errors"
	"io/fs"
	"strconv"
	"time"

	"berth"
	"berth/fusefs/index"
)

// A txn is one change of the namespace: a batch of the index with what has to
// happen once it is committed.
type txn struct {
	*index.Batch
	f     *FS
	now   int64 // Unix ns, one for the whole change
	fresh index.Stamp

	inodes  map[index.Ino]*index.Inode // read here; written back at the end
	order   []index.Ino
	made    index.Ino // of them the one that is new
	deleted []index.Inode
	remotes map[string]index.Remote // altered here
	keys    map[index.Ino]string    // prefixes of directories, as before the change

	asides map[index.Ino]string // files in the cache's "before" for content that goes
	events []berth.Change
	kicks  []index.Ino
	doomed bool
	moved  bool
}

// update runs one change under the lock of the namespace. do reads and decides
// with the methods of txn, whose inodes it may alter in place. If it returns an
// error nothing is changed.
func (f *FS) update(do func(t *txn) error) error { return f.change(do, f.db.Update) }

// change is update by a way to index.DB.Update.
func (f *FS) change(do func(t *txn) error, update func(func(*index.Batch) error) error) error {
	t := &txn{f: f, now: f.now().UnixNano()}
	err := update(func(b *index.Batch) error {
		t.Batch = b
		if err := do(t); err != nil {
			return err
		}
		for _, ino := range t.order {
			n := t.inodes[ino]
			switch {
			case n == nil:
			case ino == t.made:
				b.AddInode(*n)
			default:
				b.PutInode(*n)
			}
		}
		for _, r := range t.remotes {
			b.PutRemote(r)
		}
		// Before the commit, so that an inode is always in one of the two.
		for _, n := range t.deleted {
			f.orphans.add(n, t.asides[n.Ino])
			t.countUnnamed(&n)
		}
		return nil
	})
	if err != nil {
		for _, n := range t.deleted {
			f.orphans.remove(n.Ino)
		}
		return err
	}
	t.after()
	return nil
}

// after does what follows a commit. No lock is held.
func (t *txn) after() {
	f := t.f
	for ino, name := range t.asides {
		f.keepAside(ino, name)
	}
	for _, n := range t.deleted {
		f.sync.Gone(n.Ino)
	}
	for _, c := range t.events {
		f.feed.publish(c)
	}
	for _, ino := range t.kicks {
		f.sync.Kick(ino)
	}
	if t.doomed {
		f.sync.KickDoomed()
	}
	if t.moved {
		f.sync.KickMoves()
	}
}

// inode returns an inode to look at or to alter, the same one each time.
func (t *txn) inode(ino index.Ino) (*index.Inode, error) {
	if n := t.inodes[ino]; n != nil {
		return n, nil
	}
	n, err := t.f.db.Inode(ino)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errStale
		}
		return nil, err
	}
	t.keep(&n)
	return &n, nil
}

// keep writes an inode at the end of the change.
func (t *txn) keep(n *index.Inode) {
	if t.inodes == nil {
		t.inodes = make(map[index.Ino]*index.Inode, 4)
	}
	if _, ok := t.inodes[n.Ino]; !ok {
		t.order = append(t.order, n.Ino)
	}
	t.inodes[n.Ino] = n
}

// delete removes an inode that has lost its last name.
func (t *txn) delete(n *index.Inode) {
	t.inodes[n.Ino] = nil
	t.DeleteInode(n.Ino)
	gone := *n
	gone.Links, gone.Ctime = 0, t.now
	t.deleted = append(t.deleted, gone)
}

// stamp returns the change's place in the order of all gateways.
func (t *txn) stamp() index.Stamp {
	if t.fresh.IsZero() {
		t.fresh = t.f.sync.Clock().Now()
	}
	return t.fresh
}

// enqueue has the bucket follow an inode.
func (t *txn) enqueue(ino index.Ino) {
	t.Enqueue(ino, time.Now().UnixNano())
	t.kicks = append(t.kicks, ino)
}

// touchDir notes that the entries of a directory changed.
func (t *txn) touchDir(dir *index.Inode) { dir.Mtime, dir.Ctime = t.now, t.now }

// remote returns what is known under a key, as this change leaves it so far.
func (t *txn) remote(key string) (index.Remote, bool, error) {
	if r, ok := t.remotes[key]; ok {
		return r, true, nil
	}
	return t.f.db.Remote(key)
}

func (t *txn) putRemote(r index.Remote) {
	if t.remotes == nil {
		t.remotes = make(map[string]index.Remote, 2)
	}
	t.remotes[r.Key] = r
}

// doom has the object of a key deleted, if there is or may be one.
func (t *txn) doom(key string) error {
	r, ok, err := t.remote(key)
	if err != nil || !ok {
		return err
	}
	t.doomed = true
	r.Doomed = true
	t.putRemote(r)
	return nil
}

// revive takes back the doom of a key that a name has again.
func (t *txn) revive(key string) error {
	r, ok, err := t.remote(key)
	if err != nil || !ok || !r.Doomed {
		return err
	}
	r.Doomed = false
	t.putRemote(r)
	return nil
}

// prefix returns what the keys in a directory begin with.
func (t *txn) prefix(dir *index.Inode) (string, error) {
	if p, ok := t.keys[dir.Ino]; ok {
		return p, nil
	}
	p, err := t.f.dirPrefix(dir)
	if err != nil {
		return "", err
	}
	if t.keys == nil {
		t.keys = make(map[index.Ino]string, 2)
	}
	t.keys[dir.Ino] = p
	return p, nil
}

// changed publishes an operation on an inode under one of its names, with the
// state that the change leaves.
func (t *txn) changed(op berth.ChangeOp, n *index.Inode) error {
	if n.IsDir() && n.Parent == 0 {
		return nil // the root of a tree: who cares sees the tree
	}
	names, err := t.f.db.Names(n)
	if err != nil || len(names) == 0 {
		return err
	}
	return t.changedName(op, n, names[0], "")
}

// changedName is changed for a certain name. from is the path before a rename.
func (t *txn) changedName(op berth.ChangeOp, n *index.Inode, name index.Name, from string) error {
	tree, ok := t.f.trees.prefix(n.Tree)
	if !ok {
		return nil
	}
	dir, err := t.inode(name.Parent)
	if err != nil {
		return err
	}
	prefix, err := t.prefix(dir)
	if err != nil {
		return err
	}
	path := prefix[len(tree):] + name.Name
	t.events = append(t.events, berth.Change{
		Time: time.Unix(0, t.now), Tree: treeName(tree), Path: path, From: from, Op: op,
		Kind: kindOf(n.Mode), Size: n.Size, Version: versionOf(n),
	})
	return nil
}

func kindOf(mode uint32) berth.FileKind {
	switch mode & index.TypeMask {
	case index.TypeFile:
		return berth.KindFile
	case index.TypeDir:
		return berth.KindDir
	case index.TypeSymlink:
		return berth.KindSymlink
	}
	return berth.KindOther
}

// versionOf names the generation of an inode's content.
func versionOf(n *index.Inode) string {
	if !n.IsFile() {
		return ""
	}
	return strconv.FormatUint(uint64(n.Ino), 36) + "." + strconv.FormatUint(n.Gen, 36)
}
