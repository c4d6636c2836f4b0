package fusefs

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"berth/fusefs/index"
)

// forever is the timeout of what only this kernel can change, short enough that
// a mistake heals by itself.
const forever = time.Hour

// believe is how long the kernel may use what it was told.
func (f *FS) believe() time.Duration {
	if f.opts.Revalidate == 0 {
		return forever
	}
	return f.opts.Revalidate
}

// Lookup serves the search for a name.
func (r *rawFS) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	f, parent := r.fs, index.Ino(h.NodeId)
	epoch := f.notify.epoch()
	n, err := f.lookup(callerOf(cancel, h), parent, name)
	if err == nil {
		err = f.fillEntry(n.Ino, out)
	}
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errStale) {
		if f.synth.isSynth(parent) {
			return fuse.ENOENT // a tree may be attached here at any time
		}
		*out = fuse.EntryOut{}
		out.SetEntryTimeout(f.believe())
		err = nil
	}
	if err == nil && f.notify.epoch() != epoch {
		// A change was announced meanwhile, maybe of this name: do not keep it.
		out.SetEntryTimeout(0)
		out.SetAttrTimeout(0)
	}
	return f.statusOf("lookup", h.NodeId, err)
}

// lookup returns the inode of a name. A synthetic node is one without a mode.
func (f *FS) lookup(c caller, parent index.Ino, name string) (index.Inode, error) {
	if len(name) > maxName {
		return index.Inode{}, checkName(name)
	}
	if ino, ok := f.synth.child(parent, name); ok {
		return f.synthInode(ino)
	}
	if f.synth.isSynth(parent) || f.hidden(parent, name) {
		return index.Inode{}, fs.ErrNotExist
	}
	if err := f.listed(c, parent); err != nil {
		return index.Inode{}, err
	}
	for was := index.Ino(0); ; {
		e, err := f.db.Lookup(parent, name)
		if err != nil {
			return index.Inode{}, err
		}
		n, err := f.described(c, e.Ino)
		if !errors.Is(err, errStale) && !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
		if e.Ino == was {
			return n, fs.ErrNotExist
		}
		was = e.Ino // removed between the two reads, or it has the number now that its object tells
	}
}

// synthInode returns the inode of a synthetic name: of the index for the root of
// a tree, else one that has only a number.
func (f *FS) synthInode(ino index.Ino) (index.Inode, error) {
	if ino < index.FirstIno {
		return index.Inode{Ino: ino}, nil
	}
	return f.inode(ino)
}

// listed makes sure that the names in a directory are known: of one that was
// never listed it waits for the store.
func (f *FS) listed(c caller, dir index.Ino) error {
	n, err := f.inode(dir)
	if err != nil {
		return err
	}
	if n.Listed != 0 && (f.opts.Revalidate == 0 || f.now().UnixNano()-n.Listed < int64(f.opts.Revalidate)) {
		return nil
	}
	if n.Links == 0 {
		return nil // removed, and so empty
	}
	if n.Listed != 0 {
		return f.sync.List(f.ctx, dir) // refreshes in the background
	}
	return f.store(c, "list", dir, func(ctx context.Context) error { return f.sync.List(ctx, dir) })
}

// described returns an inode whose type and attributes are certain.
func (f *FS) described(c caller, ino index.Ino) (index.Inode, error) {
	n, err := f.inode(ino)
	if err != nil || !vague(&n) {
		return n, err
	}
	if n.IsDir() {
		// What it has by way of attributes its own listing tells. Without it the
		// defaults have to do.
		if err := f.listed(c, ino); errors.Is(err, errKilled) {
			return n, err
		}
		if n, err = f.inode(ino); err != nil || !n.Bare {
			return n, err
		}
	}
	err = f.store(c, "describe", ino, func(ctx context.Context) error { return f.sync.Describe(ctx, ino) })
	if err != nil {
		return n, err
	}
	return f.inode(ino)
}

// vague says whether attributes are guesses: of what only a LIST has told of. The
// listing of a directory shows those below as prefixes; whether they have markers
// with attributes is not known then.
func vague(n *index.Inode) bool {
	return n.Bare || n.IsDir() && n.Listed == 0 && n.Parent != 0
}

// fillEntry answers with an inode.
func (f *FS) fillEntry(ino index.Ino, out *fuse.EntryOut) error {
	out.NodeId, out.Generation = uint64(ino), 1
	out.SetEntryTimeout(f.believe())
	if f.synth.isSynth(ino) {
		f.synthAttr(ino, &out.Attr)
		out.SetAttrTimeout(forever)
		return nil
	}
	n, live, err := f.current(ino)
	if err != nil {
		return err
	}
	f.plainAttr(&n, &out.Attr)
	out.SetAttrTimeout(f.attrTimeout(&n, live))
	return nil
}

// attrTimeout is how long the kernel may use attributes. It may not while the
// file is open for writing, since a mapping changes them unseen.
func (f *FS) attrTimeout(n *index.Inode, live bool) time.Duration {
	if live || n.Links == 0 {
		return 0
	}
	return f.believe()
}
