package fusefs

import (
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"berth"
	"berth/fusefs/index"
)

const blockSize = 4096

// plainAttr writes the attributes of an inode as they are in it.
func (f *FS) plainAttr(n *index.Inode, a *fuse.Attr) {
	a.Ino = uint64(n.Ino)
	a.Size = uint64(n.Size)
	a.Blocks = uint64(n.Size+blockSize-1) / blockSize * (blockSize / 512)
	a.Blksize = blockSize
	a.Mode = n.Mode
	a.Nlink = shownLinks(n)
	a.Uid, a.Gid = f.shownOwner(n)
	atime, mtime, ctime := time.Unix(0, shownAtime(n)), time.Unix(0, n.Mtime), time.Unix(0, n.Ctime)
	a.SetTimes(&atime, &mtime, &ctime)
}

// shownLinks counts a directory as ext4 does: its name, its own dot, and the dots
// of those in it. Of one that was not listed yet it is 1, which everywhere means
// that the number is not known.
func shownLinks(n *index.Inode) uint32 {
	switch {
	case !n.IsDir():
		return n.Links + n.Others
	case n.Links == 0:
		return 0
	case n.Listed == 0:
		return 1
	}
	return 2 + n.Subdirs
}

// shownAtime is the access time: as set, else the modification time.
func shownAtime(n *index.Inode) int64 {
	if n.Atime != 0 {
		return n.Atime
	}
	return n.Mtime
}

// GetAttr serves stat(2) when the kernel has no attributes or old ones.
func (r *rawFS) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	f, ino := r.fs, index.Ino(in.NodeId)
	err := f.getAttr(callerOf(cancel, &in.InHeader), ino, out)
	return f.statusOf("getattr", in.NodeId, err)
}

func (f *FS) getAttr(c caller, ino index.Ino, out *fuse.AttrOut) error {
	if f.synth.isSynth(ino) {
		f.synthAttr(ino, &out.Attr)
		out.SetTimeout(forever)
		return nil
	}
	epoch := f.notify.epoch()
	if _, err := f.described(c, ino); err != nil {
		return err
	}
	n, live, err := f.current(ino)
	if err != nil {
		return err
	}
	f.plainAttr(&n, &out.Attr)
	if f.notify.epoch() != epoch {
		live = true
	}
	out.SetTimeout(f.attrTimeout(&n, live))
	return nil
}

// SetAttr serves chmod, chown, truncate and utimens.
func (r *rawFS) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	f, ino := r.fs, index.Ino(in.NodeId)
	c := callerOf(cancel, &in.InHeader)
	if f.synth.isSynth(ino) {
		return fuse.EROFS
	}
	err := f.setAttr(c, ino, in)
	if err == nil {
		err = f.getAttr(c, ino, out)
	}
	return f.statusOf("setattr", in.NodeId, err)
}

func (f *FS) setAttr(c caller, ino index.Ino, in *fuse.SetAttrIn) error {
	n, err := f.described(c, ino)
	if err != nil {
		return err
	}
	if err := f.checkOwner(&n, in); err != nil {
		return err
	}
	if size, ok := in.GetSize(); ok {
		if !n.IsFile() {
			return syscall.EINVAL
		}
		if err := f.truncate(c, ino, int64(size)); err != nil {
			return err
		}
	}
	if in.Valid&^(fuse.FATTR_FH|fuse.FATTR_LOCKOWNER) == 0 {
		// What is left when the kernel has taken out the mode that it leaves to us:
		// somebody without the right to keep them wrote past this process.
		return f.dropPrivileges(ino)
	}
	times, err := f.wantedTimes(ino, in)
	if err != nil {
		return err
	}
	const attrs = fuse.FATTR_MODE | fuse.FATTR_UID | fuse.FATTR_GID | fuse.FATTR_KILL_SUIDGID
	if !times.set && in.Valid&attrs == 0 {
		return nil
	}
	return f.alter(ino, func(n *index.Inode) error {
		f.applyAttr(n, in)
		if times.set {
			n.Mtime, n.Atime = times.mtime, times.atime
		}
		return nil
	})
}

// dropPrivileges takes setuid and setgid from a file that was written to.
func (f *FS) dropPrivileges(ino index.Ino) error {
	n, err := f.inode(ino)
	if err != nil || killPrivileges(n.Mode) == n.Mode || !n.IsFile() {
		return err
	}
	return f.alter(ino, func(n *index.Inode) error {
		n.Mode = killPrivileges(n.Mode)
		return nil
	})
}

// checkOwner refuses another owner than the one that is shown, where one is set.
func (f *FS) checkOwner(n *index.Inode, in *fuse.SetAttrIn) error {
	if f.opts.Owner == nil {
		return nil
	}
	uid, gid := f.shownOwner(n)
	if u, ok := in.GetUID(); ok && u != uid {
		return syscall.EPERM
	}
	if g, ok := in.GetGID(); ok && g != gid {
		return syscall.EPERM
	}
	return nil
}

func (f *FS) applyAttr(n *index.Inode, in *fuse.SetAttrIn) {
	if mode, ok := in.GetMode(); ok {
		n.Mode = n.Mode&index.TypeMask | mode&permMask
	}
	if in.Valid&fuse.FATTR_KILL_SUIDGID != 0 {
		n.Mode = killPrivileges(n.Mode)
	}
	if f.opts.Owner != nil {
		return
	}
	if uid, ok := in.GetUID(); ok {
		n.UID = uid
	}
	if gid, ok := in.GetGID(); ok {
		n.GID = gid
	}
}

// killPrivileges drops setuid, and setgid where it means what it says.
func killPrivileges(mode uint32) uint32 {
	const setuid, groupExec = 0o4000, 0o010
	mode &^= setuid
	if mode&groupExec != 0 {
		mode &^= modeSetgid
	}
	return mode
}

// times are what an inode is to have as Mtime and Atime.
type times struct {
	set          bool
	mtime, atime int64
}

// wantedTimes returns the times that an inode gets by a request, which are its own
// where the request has none.
func (f *FS) wantedTimes(ino index.Ino, in *fuse.SetAttrIn) (times, error) {
	atime, setAtime := f.wantedTime(in, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, in.Atime, in.Atimensec)
	mtime, setMtime := f.wantedTime(in, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, in.Mtime, in.Mtimensec)
	if !setAtime && !setMtime {
		return times{}, nil
	}
	n, _, err := f.current(ino)
	if err != nil {
		return times{}, err
	}
	if !setAtime {
		atime = shownAtime(&n)
	}
	if !setMtime {
		mtime = n.Mtime
	} else if n.IsFile() {
		if mtime, err = f.setContentMtime(ino, mtime); err != nil {
			return times{}, err
		}
	}
	switch {
	case atime == mtime:
		atime = 0
	case atime == 0:
		atime = 1 // 1970 to the nanosecond cannot be told from none
	}
	return times{set: true, mtime: mtime, atime: atime}, nil
}

// wantedTime returns one time of a request in Unix ns, by our own clock when it
// says now.
func (f *FS) wantedTime(in *fuse.SetAttrIn, given, now uint32, sec uint64, nsec uint32) (int64, bool) {
	switch {
	case in.Valid&given == 0:
		return 0, false
	case in.Valid&now != 0:
		return f.now().UnixNano(), true
	}
	return time.Unix(int64(sec), int64(nsec)).UnixNano(), true
}

// setContentMtime gives a file that is open for writing its time through the
// content file, which is where its attributes come from. That it was changed
// before is noted first, since the times do not tell it any more.
func (f *FS) setContentMtime(ino index.Ino, mtime int64) (int64, error) {
	o := f.opens.peek(ino)
	if o == nil {
		return mtime, nil
	}
	defer f.opens.put(o, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.marked {
		return mtime, nil
	}
	st, err := f.statLocked(o)
	if err != nil {
		return mtime, err
	}
	m := o.base
	m.Fresh = changedSince(m, st)
	if m.Fresh && !o.base.Fresh {
		if err := f.remarkLocked(o, m); err != nil {
			return mtime, err
		}
	}
	err = f.whileThawedLocked(o, func() error { return f.cache.SetMtime(ino, o.r, mtime) })
	if err != nil {
		return mtime, err
	}
	if st, err = f.statLocked(o); err != nil || m.Fresh {
		return st.Mtime, err
	}
	m.Mtime = st.Mtime
	return st.Mtime, f.remarkLocked(o, m)
}

// alter changes attributes of an inode, with or without a name.
func (f *FS) alter(ino index.Ino, do func(n *index.Inode) error) error {
	ok, err := f.orphans.alter(ino, func(n *index.Inode) error {
		n.Ctime = f.now().UnixNano()
		return do(n)
	})
	if ok {
		return err
	}
	return f.updateFor(ino, func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if err := do(n); err != nil {
			return err
		}
		n.Ctime, n.AttrStamp = t.now, t.stamp()
		if n.IsDir() && n.Parent != 0 {
			n.Explicit = true
		}
		if n.Stored() && !(n.IsDir() && n.Parent == 0) {
			t.enqueue(ino)
		}
		return t.changed(berth.OpAttr, n)
	})
}

// Access is left to the kernel, which has the modes.
func (r *rawFS) Access(cancel <-chan struct{}, in *fuse.AccessIn) fuse.Status {
	return fuse.OK
}
