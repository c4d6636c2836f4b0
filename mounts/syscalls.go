package mounts

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// moveMountBeneath is MOVE_MOUNT_BENEATH (kernel 6.5): the moved mount is put
// under the one that is on top of the target now.
const moveMountBeneath = 0x200

// The flags of mounts that a machine or the gateway sees.
const (
	attrTree     = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	attrTemplate = attrTree | unix.MOUNT_ATTR_RDONLY
)

// openDir opens a directory below another for use in a path or as a mount's
// place. No symbolic link is followed, wherever in rel it is, and no ".." or
// link leads out of at. Crossing a mount point is allowed unless noXDev is set.
func openDir(at int, rel string, noXDev bool) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	if noXDev {
		how.Resolve |= unix.RESOLVE_NO_XDEV
	}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(at, rel, &how)
		// EAGAIN tells of a rename or mount that went on meanwhile.
		if err == nil || tries > 100 || !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// A mountID is the kernel's number of a mount. Numbers of one kind are compared.
type mountID uint64

// mountOf returns the mount that an open directory is in.
func mountOf(fd int) (mountID, error) {
	var st unix.Statx_t
	// Nothing of the inode is asked for, so a dead FUSE server is not either.
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	return mountID(st.Mnt_id), err
}

// An inode names a file on this host while something keeps it open.
type inode struct {
	major, minor uint32
	ino          uint64
}

func inodeOf(fd int) (inode, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO, &st)
	return inode{st.Dev_major, st.Dev_minor, st.Ino}, err
}

// cloneMount returns a detached bind mount of the directory alone, private and
// with the attributes added to those of the mount it comes from.
func cloneMount(dir int, attrs uint64) (int, error) {
	tree, err := unix.OpenTree(dir, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("open_tree: %w", err)
	}
	// A copy of a shared mount is its peer: what is mounted on one would appear
	// on the other. Private it must be before anything is mounted on it.
	attr := unix.MountAttr{Attr_set: attrs, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(tree)
		return -1, fmt.Errorf("mount_setattr: %w", err)
	}
	return tree, nil
}

// moveMount attaches a mount at a directory.
func moveMount(tree, dir int, flags int) error {
	err := unix.MoveMount(tree, "", dir, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH|flags)
	if err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

// detach takes away the mount whose root is open as dir, with all that is
// mounted on it. Open files in it stay usable.
func detach(dir int) error {
	// The link leads to this very mount; no name is resolved.
	return unix.Unmount("/proc/self/fd/"+strconv.Itoa(dir), unix.MNT_DETACH)
}

// setPropagation changes the propagation of the mount whose root is open as dir.
func setPropagation(dir int, kind uint64) error {
	return unix.MountSetattr(dir, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Propagation: kind})
}
