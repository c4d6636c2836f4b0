package fusefs

import (
	"cmp"
	"slices"
	"syscall"

	"berth"
	"berth/fusefs/index"
)

// A Quota says what may be held: apparent bytes of files, each counted once
// however many names it has, and inodes of every type. Zero is no limit.
type Quota struct {
	Bytes int64 `json:"bytes" yaml:"bytes"`
	Files int64 `json:"files" yaml:"files"`
}

// Quotas are the limits of trees. What a caller does is refused with EDQUOT when
// it would go beyond; what comes from the bucket is counted and never refused.
type Quotas struct {
	Member    Quota `json:"member" yaml:"member"` // each tree by its kind
	Shared    Quota `json:"shared" yaml:"shared"`
	Session   Quota `json:"session" yaml:"session"`
	Home      Quota `json:"home" yaml:"home"`
	Workspace Quota `json:"workspace" yaml:"workspace"` // all trees of a workspace together
}

// limitTree tells the index what a tree may hold.
func (f *FS) limitTree(root index.Ino, prefix string) {
	q := f.opts.Quotas
	tree, err := berth.ParseTree(treeName(prefix))
	if err != nil { // the whole bucket
		f.db.SetLimit(root, index.Usage(f.opts.BucketQuota), "", index.Usage{})
		return
	}
	own := map[berth.TreeKind]Quota{berth.MemberDisk: q.Member, berth.SharedDir: q.Shared,
		berth.SessionRoot: q.Session, berth.MachineHome: q.Home}[tree.Kind]
	f.db.SetLimit(root, index.Usage(own), string(tree.Workspace), index.Usage(q.Workspace))
}

// roomForOne refuses one more inode in a tree that is full. It is called in a
// change of the namespace, so that no two can take the last place.
func (t *txn) roomForOne(tree index.Ino) error {
	if _, _, room := t.f.db.Usage(tree); room.Files < 1 {
		return syscall.EDQUOT
	}
	return nil
}

// growingLocked runs a change that may give a file that is open for writing a
// size, if its tree has room for it, and counts what has become of the file.
func (f *FS) growingLocked(o *openFile, size int64, do func() error) error {
	if !f.db.GrowTo(o.ino, size) {
		return syscall.EDQUOT
	}
	err := do()
	f.recountLocked(o)
	return err
}

// grantWrite returns as much of what is to be written at an offset as the tree has
// room for, and counts it.
func (f *FS) grantWrite(o *openFile, off int64, data [][]byte) ([][]byte, error) {
	size := off
	for _, part := range data {
		size += int64(len(part))
	}
	granted := f.db.Grow(o.ino, size)
	if granted == size {
		return data, nil
	}
	if granted <= off {
		o.mu.Lock()
		f.recountLocked(o)
		o.mu.Unlock()
		return nil, syscall.EDQUOT
	}
	var fits [][]byte
	for _, part := range data {
		part = part[:min(int64(len(part)), granted-off)]
		fits = append(fits, part)
		off += int64(len(part))
	}
	return fits, nil
}

// recountLocked counts a file that is open for writing as it is now.
func (f *FS) recountLocked(o *openFile) {
	if st, err := f.statLocked(o); err == nil {
		f.db.Resize(o.ino, st.Size)
	}
}

// endCount has a settled file count by its record again; one without a name
// counts until it ends.
func (f *FS) endCount(ino index.Ino) {
	f.orphans.unless(ino, func() { f.db.EndOpen(ino) })
}

// countUnnamed goes on counting a file that loses its last name and is, or is
// about to be, open. Who opens it meanwhile finds it among the orphans: see
// openLocked.
func (t *txn) countUnnamed(n *index.Inode) {
	if n.IsFile() && t.f.opens.has(n.Ino) {
		t.CountOpen(n, true)
	}
}

// mediatedNear is how near to a limit a tree, or the volume to its floor, has its
// new writers' writes go through this process, where they can be refused.
const mediatedNear = 1 << 30

// near says whether a new writer of a tree is to be mediated.
func (f *FS) near(tree index.Ino) bool {
	_, _, room := f.db.Usage(tree)
	return min(room.Bytes, f.space.room()) < cmp.Or(f.opts.near, mediatedNear)
}

// maxTreeStatus bounds the trees in a Status.
const maxTreeStatus = 100

// A TreeStatus is what a tree holds and may hold.
type TreeStatus struct {
	Tree  string `json:"tree"` // "" = the whole bucket
	Used  Quota  `json:"used"`
	Limit Quota  `json:"limit"` // zero = none
	Full  bool   `json:"full"`  // it, or its workspace, has no room for a byte, or for a file
}

// treeStatus returns the trees that use most of their limits first.
func (f *FS) treeStatus() []TreeStatus {
	var all []TreeStatus
	for root, prefix := range f.trees.all() {
		total, limit, room := f.db.Usage(root)
		all = append(all, TreeStatus{treeName(prefix), Quota(total), Quota(limit), min(room.Bytes, room.Files) <= 0})
	}
	slices.SortFunc(all, func(a, b TreeStatus) int {
		return cmp.Or(cmp.Compare(b.fullness(), a.fullness()), cmp.Compare(b.Used.Bytes, a.Used.Bytes), cmp.Compare(a.Tree, b.Tree))
	})
	return all[:min(len(all), maxTreeStatus)]
}

// fullness is the used part of the limit that is nearer.
func (s *TreeStatus) fullness() float64 {
	part := func(used, limit int64) float64 {
		if limit == 0 {
			return 0
		}
		return float64(used) / float64(limit)
	}
	return max(part(s.Used.Bytes, s.Limit.Bytes), part(s.Used.Files, s.Limit.Files))
}
