package fusefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

// AttachTree makes a tree appear in the mount under its place in the bucket, and
// the mount points below its root as synthetic directories. It can be repeated;
// mount points are added to those that are there. What the tree itself has under
// such a name is hidden. When it returns nil the kernel sees it.
func (f *FS) AttachTree(ctx context.Context, t berth.Tree, mountPoints ...string) error {
	if f.opts.WholeBucket {
		return fmt.Errorf("cannot attach tree %s: the whole bucket is mounted: %w", t, fs.ErrInvalid)
	}
	if _, err := berth.ParseTree(t.String()); err != nil {
		return err
	}
	for _, p := range mountPoints {
		if err := checkPoint(p); err != nil {
			return fmt.Errorf("cannot attach tree %s: %w", t, err)
		}
	}
	a := f.attach.of(t)
	a.mu.Lock()
	defer a.mu.Unlock()
	told, err := f.attachTree(t, mountPoints)
	a.told = append(a.told, told...)
	if err != nil {
		return fmt.Errorf("cannot attach tree %s: %w", t, err)
	}
	for len(a.told) > 0 {
		select {
		case <-a.told[0]:
			a.told = a.told[1:]
		case <-ctx.Done():
			return fmt.Errorf("cannot attach tree %s: a request in it has not ended: %w", t, context.Cause(ctx))
		}
	}
	return nil
}

// attachTree makes what AttachTree does and returns what it has to wait for.
func (f *FS) attachTree(t berth.Tree, mountPoints []string) (told []<-chan struct{}, err error) {
	root, ok, err := f.db.Tree(t.Prefix())
	if err == nil && !ok {
		if root, err = f.db.NewIno(); err == nil {
			err = f.makeTree(t.Prefix(), root)
		}
	}
	if err != nil {
		return nil, err
	}
	for _, p := range mountPoints {
		first, added := f.synth.add(root, p, 0)
		if added && first.parent >= index.FirstIno {
			// What the kernel knew before, never the node itself.
			told = append(told, f.notify.entryTold(first.parent, first.name))
		}
	}
	f.synth.add(index.RootIno, t.String(), root)
	return told, nil
}

// An attachTable has what is under way of AttachTree for each tree.
type attachTable struct {
	mu    sync.Mutex // protects trees
	trees map[berth.Tree]*attaching
}

// An attaching makes AttachTree of one tree one at a time.
type attaching struct {
	mu   sync.Mutex        // taken before all other locks; protects told
	told []<-chan struct{} // each closed when the kernel knows of a mount point
}

func (l *attachTable) of(t berth.Tree) *attaching {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trees == nil {
		l.trees = make(map[berth.Tree]*attaching)
	}
	if l.trees[t] == nil {
		l.trees[t] = new(attaching)
	}
	return l.trees[t]
}

// checkPoint refuses what is no clean relative path.
func checkPoint(path string) error {
	if !fs.ValidPath(path) || path == "." {
		return fmt.Errorf("invalid mount point %q: %w", path, fs.ErrInvalid)
	}
	for name := range strings.SplitSeq(path, "/") {
		if err := checkName(name); err != nil {
			return fmt.Errorf("invalid mount point %q: %w", path, err)
		}
	}
	return nil
}

// RemoveTree removes all that a tree holds, here and in the bucket; the tree
// itself stays, empty. It waits for the store. Files that are still open keep
// their bytes until they are closed.
func (f *FS) RemoveTree(ctx context.Context, t berth.Tree) error {
	root, ok, err := f.db.Tree(t.Prefix())
	if err == nil && ok {
		err = f.emptyDir(ctx, root)
	}
	if err == nil {
		err = f.sync.Flush(ctx, t.Prefix(), nil)
	}
	if err == nil {
		err = f.purge(ctx, t.Prefix())
	}
	if err == nil && ok {
		err = f.forgetSaves(root)
	}
	if err != nil {
		return fmt.Errorf("cannot remove tree %s: %w", t, err)
	}
	return nil
}

// emptyDir removes what is below a directory, as far as it is known here.
func (f *FS) emptyDir(ctx context.Context, dir index.Ino) error {
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		entries, err := f.db.Entries(dir, "", dirPage)
		if err != nil || len(entries) == 0 {
			return err
		}
		for _, e := range entries {
			if n, err := f.db.Inode(e.Ino); err == nil && n.IsDir() {
				if err := f.emptyDir(ctx, e.Ino); err != nil {
					return err
				}
			}
		}
		err = f.update(func(t *txn) error {
			parent, err := t.parent(dir)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if err := f.dropEntry(t, parent, e.Name); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, e := range entries {
			f.EntryChanged(dir, e.Name)
			if f.orphans.forget(e.Ino) { // the kernel may never have known it
				f.endOrphan(e.Ino)
			}
		}
	}
}

// dropEntry removes a name if it is still there and, if a directory, empty.
func (f *FS) dropEntry(t *txn, parent *index.Inode, name string) error {
	n, err := t.named(parent.Ino, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if n.IsDir() {
		entries, err := f.db.Entries(n.Ino, "", 1)
		if err != nil || len(entries) > 0 {
			return err // somebody made something in it: next round
		}
	}
	if err := t.changedName(berth.OpRemove, n, index.Name{Parent: parent.Ino, Name: name}, ""); err != nil {
		return err
	}
	return t.dropName(parent, name, n)
}

// purge deletes the objects under a prefix that nothing here knows.
func (f *FS) purge(ctx context.Context, prefix string) error {
	for after := ""; ; {
		page, err := f.opts.Store.List(ctx, object.ListOptions{Prefix: prefix, After: after})
		if err != nil {
			return err
		}
		for _, info := range page.Objects {
			if err := f.opts.Store.Delete(ctx, info.Key, ""); err != nil {
				return err
			}
		}
		err = f.db.Update(func(b *index.Batch) error {
			for _, info := range page.Objects {
				b.DeleteRemote(info.Key)
			}
			return nil
		})
		if err != nil || page.Next == "" {
			return err
		}
		after = page.Next
	}
}
