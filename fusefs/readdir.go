package fusefs

import (
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"berth/fusefs/index"
)

// dirPage is how many names of a directory are read at once.
const dirPage = 512

// A dirHandle is one opendir(3). Its cookies count the names it has given: first
// the head, then pages of the index. For each page it keeps the name that the
// page follows, so that a seek back reads it again; memory does not grow with
// the directory but for that.
type dirHandle struct {
	ino index.Ino

	mu     sync.Mutex // protects the fields below
	head   []dirName
	hide   map[string]bool
	pages  []string // what precedes page i; "" for the first
	loaded map[int][]index.Entry
	end    int // number of pages; -1 while not known
}

type dirName struct {
	name string
	ino  index.Ino
}

// A dirTable gives numbers to the handles of directories.
type dirTable struct {
	mu   sync.Mutex // protects the fields below
	open map[uint64]*dirHandle
	last uint64
}

func (t *dirTable) init() { t.open = make(map[uint64]*dirHandle) }

func (t *dirTable) add(d *dirHandle) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.open[t.last] = d
	return t.last
}

func (t *dirTable) get(fh uint64) *dirHandle {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[fh]
}

func (t *dirTable) remove(fh uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, fh)
}

// OpenDir serves opendir(3); it waits until the names are known.
func (r *rawFS) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	f, ino := r.fs, index.Ino(in.NodeId)
	d := &dirHandle{ino: ino}
	if err := f.rewind(callerOf(cancel, &in.InHeader), d); err != nil {
		return f.statusOf("opendir", in.NodeId, err)
	}
	out.Fh = f.dirs.add(d)
	return fuse.OK
}

// rewind makes a handle begin anew with what the directory holds now.
func (f *FS) rewind(c caller, d *dirHandle) error {
	var parent index.Ino
	if f.synth.isSynth(d.ino) {
		parent = f.synth.parentOf(d.ino)
	} else {
		if err := f.listed(c, d.ino); err != nil {
			return err
		}
		n, err := f.inode(d.ino)
		if err != nil {
			return err
		}
		if !n.IsDir() {
			return syscall.ENOTDIR
		}
		if parent = n.Parent; parent == 0 {
			parent = f.synth.parentOf(d.ino)
		}
	}
	d.head = []dirName{{".", d.ino}, {"..", parent}}
	d.hide = nil
	for _, s := range f.synth.list(d.ino) {
		d.head = append(d.head, dirName(s))
		d.hideName(s.name)
	}
	if f.hidden(d.ino, ownPrefix) {
		d.hideName(ownPrefix)
	}
	d.pages, d.loaded, d.end = []string{""}, make(map[int][]index.Entry), -1
	if f.synth.isSynth(d.ino) {
		d.end = 0
	}
	return nil
}

func (d *dirHandle) hideName(name string) {
	if d.hide == nil {
		d.hide = make(map[string]bool)
	}
	d.hide[name] = true
}

// page returns a page of names, nil behind the last one. Pages are reached in
// order, or again.
func (f *FS) page(d *dirHandle, i int) ([]index.Entry, error) {
	if entries, ok := d.loaded[i]; ok {
		return entries, nil
	}
	if d.end >= 0 && i >= d.end || i >= len(d.pages) {
		return nil, nil
	}
	entries, err := f.db.Entries(d.ino, d.pages[i], dirPage)
	if err != nil {
		return nil, err
	}
	switch {
	case len(entries) == dirPage && i == len(d.pages)-1:
		d.pages = append(d.pages, entries[dirPage-1].Name)
	case len(entries) < dirPage && i == len(d.pages)-1:
		d.end = i + 1
	}
	// The kernel may ask again for what did not fit into its caller's buffer:
	// never more than the page before.
	for j := range d.loaded {
		if j < i-1 || j > i+1 {
			delete(d.loaded, j)
		}
	}
	d.loaded[i] = entries
	return entries, nil
}

// entry returns the name at a cookie; ok is false at the end. A name that is not
// shown has an empty Name.
func (f *FS) entry(d *dirHandle, at uint64) (e index.Entry, ok bool, err error) {
	if at < uint64(len(d.head)) {
		h := d.head[at]
		return index.Entry{Name: h.name, Ino: h.ino, Type: index.TypeDir}, true, nil
	}
	at -= uint64(len(d.head))
	entries, err := f.page(d, int(at/dirPage))
	if err != nil || at%dirPage >= uint64(len(entries)) {
		return e, false, err
	}
	if e = entries[at%dirPage]; d.hide[e.Name] {
		e.Name = ""
	}
	return e, true, nil
}

// ReadDir serves readdir(3) without attributes.
func (r *rawFS) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return r.readDir(cancel, in, func(e index.Entry, off uint64) (bool, error) {
		return out.AddDirEntry(fuse.DirEntry{Name: e.Name, Ino: uint64(e.Ino), Mode: e.Type, Off: off}), nil
	})
}

// ReadDirPlus serves readdir(3) with the attributes that are known, so that a
// stat of each name need not ask.
func (r *rawFS) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	f := r.fs
	epoch := f.notify.epoch()
	return r.readDir(cancel, in, func(e index.Entry, off uint64) (bool, error) {
		entry := out.AddDirLookupEntry(fuse.DirEntry{Name: e.Name, Ino: uint64(e.Ino), Mode: e.Type, Off: off})
		if entry == nil {
			return false, nil
		}
		if e.Name == "." || e.Name == ".." {
			return true, nil
		}
		n, err := f.synthInode(e.Ino)
		if err != nil || vague(&n) || f.notify.epoch() != epoch {
			return true, nil // no node: the kernel looks it up when it is needed
		}
		if err := f.fillEntry(e.Ino, entry); err != nil {
			*entry = fuse.EntryOut{}
		}
		return true, nil
	})
}

func (r *rawFS) readDir(cancel <-chan struct{}, in *fuse.ReadIn, add func(e index.Entry, off uint64) (bool, error)) fuse.Status {
	f := r.fs
	d := f.dirs.get(in.Fh)
	if d == nil {
		return fuse.EBADF
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if in.Offset == 0 {
		if err := f.rewind(callerOf(cancel, &in.InHeader), d); err != nil {
			return f.statusOf("readdir", in.NodeId, err)
		}
	}
	for at := in.Offset; ; at++ {
		e, ok, err := f.entry(d, at)
		if err != nil {
			return f.statusOf("readdir", in.NodeId, err)
		}
		if !ok {
			return fuse.OK
		}
		if e.Name == "" {
			continue
		}
		more, err := add(e, at+1)
		if err != nil {
			return f.statusOf("readdir", in.NodeId, err)
		}
		if !more {
			return fuse.OK
		}
	}
}

// ReleaseDir ends a handle.
func (r *rawFS) ReleaseDir(in *fuse.ReleaseIn) { r.fs.dirs.remove(in.Fh) }

// FsyncDir makes the names in a directory safe from power loss.
func (r *rawFS) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return r.fs.statusOf("fsyncdir", in.NodeId, r.fs.syncIndex())
}
