package fusefs

import (
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"berth/fusefs/index"
	bucketsync "berth/fusefs/sync"
)

// xattrUser is what the names of all extended attributes here begin with.
const xattrUser = "user."

// GetXAttr serves getxattr(2).
func (r *rawFS) GetXAttr(cancel <-chan struct{}, h *fuse.InHeader, attr string, dest []byte) (uint32, fuse.Status) {
	f, ino := r.fs, index.Ino(h.NodeId)
	if !strings.HasPrefix(attr, xattrUser) {
		return 0, fuse.Status(syscall.ENOTSUP)
	}
	if f.synth.isSynth(ino) {
		return 0, fuse.ENOATTR
	}
	n, err := f.described(callerOf(cancel, h), ino)
	if err != nil {
		return 0, f.statusOf("getxattr", h.NodeId, err)
	}
	value, ok := n.Xattrs[attr]
	if !ok {
		return 0, fuse.ENOATTR
	}
	return fill(dest, value)
}

// fill copies an attribute's bytes, or says how many there are.
func fill(dest, value []byte) (uint32, fuse.Status) {
	if len(dest) < len(value) {
		return uint32(len(value)), fuse.ERANGE
	}
	return uint32(copy(dest, value)), fuse.OK
}

// ListXAttr serves listxattr(2).
func (r *rawFS) ListXAttr(cancel <-chan struct{}, h *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	f, ino := r.fs, index.Ino(h.NodeId)
	if f.synth.isSynth(ino) {
		return 0, fuse.OK
	}
	n, err := f.described(callerOf(cancel, h), ino)
	if err != nil {
		return 0, f.statusOf("listxattr", h.NodeId, err)
	}
	var names []byte
	for _, name := range slices.Sorted(maps.Keys(n.Xattrs)) {
		names = append(append(names, name...), 0)
	}
	return fill(dest, names)
}

// SetXAttr serves setxattr(2).
func (r *rawFS) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, attr string, data []byte) fuse.Status {
	create, replace := in.Flags&unix.XATTR_CREATE != 0, in.Flags&unix.XATTR_REPLACE != 0
	value := append([]byte{}, data...)
	return r.changeXattr(cancel, &in.InHeader, attr, func(x map[string][]byte) error {
		_, there := x[attr]
		switch {
		case there && create:
			return syscall.EEXIST
		case !there && replace:
			return syscall.ENODATA
		}
		x[attr] = value
		return bucketsync.CheckXattrs(x) // what does not fit cannot be kept
	})
}

// RemoveXAttr serves removexattr(2).
func (r *rawFS) RemoveXAttr(cancel <-chan struct{}, h *fuse.InHeader, attr string) fuse.Status {
	return r.changeXattr(cancel, h, attr, func(x map[string][]byte) error {
		if _, ok := x[attr]; !ok {
			return syscall.ENODATA
		}
		delete(x, attr)
		return nil
	})
}

func (r *rawFS) changeXattr(cancel <-chan struct{}, h *fuse.InHeader, attr string, do func(map[string][]byte) error) fuse.Status {
	f, ino := r.fs, index.Ino(h.NodeId)
	if !strings.HasPrefix(attr, xattrUser) {
		return fuse.Status(syscall.ENOTSUP)
	}
	if f.synth.isSynth(ino) {
		return fuse.EROFS
	}
	_, err := f.described(callerOf(cancel, h), ino)
	if err == nil {
		err = f.alter(ino, func(n *index.Inode) error {
			x := maps.Clone(n.Xattrs) // the map in use elsewhere never changes
			if x == nil {
				x = make(map[string][]byte)
			}
			if err := do(x); err != nil {
				return err
			}
			if n.Xattrs = x; len(x) == 0 {
				n.Xattrs = nil
			}
			return nil
		})
	}
	return f.statusOf("setxattr", h.NodeId, err)
}
