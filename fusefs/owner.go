package fusefs

import "berth/fusefs/index"

// An Owner is a user and group that every inode is shown to belong to.
type Owner struct{ UID, GID uint32 }

// ownerOf returns who owns a new inode of a caller in a directory.
func (f *FS) ownerOf(uid, gid uint32, parent *index.Inode) (uint32, uint32) {
	if f.opts.Owner != nil {
		return 0, 0
	}
	if parent.Mode&modeSetgid != 0 {
		gid = parent.GID
	}
	return uid, gid
}

// shownOwner returns the owner that a stat of the inode tells.
func (f *FS) shownOwner(n *index.Inode) (uid, gid uint32) {
	if o := f.opts.Owner; o != nil {
		return o.UID, o.GID
	}
	return n.UID, n.GID
}
