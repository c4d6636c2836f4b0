package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"berth"
)

// Options say where a Host keeps its things and whom they belong to.
type Options struct {
	State    string // the state directory
	Template string // a host directory shown read-only as the machines' project; "" = none

	GatewayUID, GatewayGID uint32 // who may use ctl, and whom STATE/view is mapped to
	MachineUID, MachineGID uint32 // whom the file system shows as owner

	Logger *slog.Logger // nil = slog.Default
}

// A Host holds the mounts of one state directory. Prepare makes it, Start brings
// it to life on a mounted file system, Close takes every mount away. The other
// methods can be used from many goroutines between Start and Close.
//
// Lock order: slot.mu, then Host.mu. A slot's lock is held over its mount calls,
// which ask only the file system in this process.
type Host struct {
	opts  Options
	log   *slog.Logger
	lock  *os.File
	users *os.File // the user namespace of the id-mapped view; nil = none
	fs    Trees

	state, slotsDir, stageDir int // open directories; -1 = not open
	fsDir, template           int
	slotsMount                mountID
	idmapped                  bool
	beneath                   func(tree, dir int) error // moves a mount under another; kernel 6.5

	mu    sync.Mutex // protects slots
	slots map[berth.ID]*slot
}

// The places in the state directory.
const (
	fsName      = "fs"        // only root passes through it,
	fsPoint     = "fs/bucket" // to where the file system is mounted
	viewName    = "view"
	slotsName   = "slots"
	stageName   = "stage"
	journalName = "slots.d"
	lockName    = "mountd.lock"
)

// Prepare locks the state directory for mounts and clears what a dead process
// left there: all that is mounted on fs, view and stage. Slots that containers
// may still see are kept for Start. A directory that another process holds is
// refused with an error matching fs.ErrExist.
func Prepare(o Options) (*Host, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	real, err := filepath.EvalSymlinks(o.State)
	if err != nil {
		return nil, fmt.Errorf("cannot prepare mounts: %w", err)
	}
	if o.State, err = filepath.Abs(real); err != nil {
		return nil, fmt.Errorf("cannot prepare mounts: %w", err)
	}
	h := &Host{
		opts: o, log: o.Logger, slots: make(map[berth.ID]*slot),
		state: -1, slotsDir: -1, stageDir: -1, fsDir: -1, template: -1,
		beneath: func(tree, dir int) error { return moveMount(tree, dir, moveMountBeneath) },
	}
	if err := h.prepare(); err != nil {
		h.closeFiles()
		return nil, fmt.Errorf("cannot prepare mounts in %s: %w", o.State, err)
	}
	return h, nil
}

func (h *Host) prepare() error {
	if err := h.takeLock(); err != nil {
		return err
	}
	fresh, err := h.clearStale()
	if err != nil {
		return err
	}
	if err := h.openPlaces(); err != nil {
		return err
	}
	if fresh {
		if err := h.removeAllSlots(); err != nil {
			return err
		}
	}
	if err := h.shareSlots(fresh); err != nil {
		return fmt.Errorf("cannot share %s: %w", slotsName, err)
	}
	if err := h.openStage(); err != nil {
		return fmt.Errorf("cannot set up %s: %w", stageName, err)
	}
	// Before the file system is mounted: a process that serves one should not
	// fork while it has open files on it.
	h.users, err = userNamespace(idMap{h.opts.MachineUID, h.opts.GatewayUID, h.opts.MachineGID, h.opts.GatewayGID})
	if err != nil {
		h.log.Warn("Cannot map owners for the gateway", "cause", err)
	}
	return nil
}

func (h *Host) takeLock() error {
	f, err := os.OpenFile(filepath.Join(h.opts.State, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	h.lock = f
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another process holds it: %w", errors.Join(fs.ErrExist, err))
	}
	return nil
}

// clearStale detaches what is mounted on fs, view and stage. Fresh says that
// slots is not a shared mount, so that no container is behind it.
func (h *Host) clearStale() (fresh bool, err error) {
	for _, name := range []string{fsName, viewName, stageName} {
		if err := detachAll(filepath.Join(h.opts.State, name)); err != nil {
			return false, err
		}
	}
	dir := filepath.Join(h.opts.State, slotsName)
	mounts, err := mountsBelow(dir)
	if err != nil {
		return false, err
	}
	var own []mountEntry
	for _, m := range mounts {
		if m.point == dir {
			own = append(own, m)
		}
	}
	if len(own) == 1 && own[0].shared {
		return false, nil
	}
	return true, detachAll(dir)
}

// detachAll detaches every mount on a directory and below it. The directory is
// one of ours, in a directory that only root can write.
func detachAll(dir string) error {
	for range 1000 {
		mounts, err := mountsBelow(dir)
		if err != nil || len(mounts) == 0 {
			return err
		}
		// The first is the outermost: it takes the others along.
		err = unix.Unmount(mounts[0].point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("cannot unmount %s: %w", mounts[0].point, err)
		}
	}
	return fmt.Errorf("cannot unmount %s: something keeps mounting on it", dir)
}

func (h *Host) openPlaces() error {
	for _, d := range []struct {
		name string
		mode os.FileMode
	}{{fsName, 0o700}, {fsPoint, 0o700}, {viewName, 0o700}, {slotsName, 0o711}, {stageName, 0o700}, {journalName, 0o700}} {
		path := filepath.Join(h.opts.State, d.name)
		if err := os.Mkdir(path, d.mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Chmod(path, d.mode); err != nil {
			return err
		}
	}
	var err error
	if h.state, err = unix.Open(h.opts.State, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if h.slotsDir, err = openDir(h.state, slotsName, false); err != nil {
		return fmt.Errorf("cannot open %s: %w", slotsName, err)
	}
	if h.opts.Template == "" {
		return nil
	}
	if h.template, err = unix.Open(h.opts.Template, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("cannot open template %s: %w", h.opts.Template, err)
	}
	return nil
}

// shareSlots makes slots a shared mount of its own if it is none, and opens it.
func (h *Host) shareSlots(fresh bool) error {
	if fresh {
		root, err := h.bindSelf(h.slotsDir, slotsName, unix.MS_SHARED)
		if err != nil {
			return err
		}
		unix.Close(h.slotsDir)
		h.slotsDir = root
	}
	var err error
	h.slotsMount, err = mountOf(h.slotsDir)
	return err
}

func (h *Host) openStage() error {
	dir, err := openDir(h.state, stageName, true)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	h.stageDir, err = h.bindSelf(dir, stageName, unix.MS_PRIVATE)
	return err
}

// bindSelf mounts a directory on itself and returns it open again, as the root
// of the new mount.
func (h *Host) bindSelf(dir int, name string, propagation uint64) (int, error) {
	tree, err := cloneMount(dir, attrTree)
	if err != nil {
		return -1, err
	}
	defer unix.Close(tree)
	if err := moveMount(tree, dir, 0); err != nil {
		return -1, err
	}
	root, err := openDir(h.state, name, false)
	if err != nil {
		return -1, err
	}
	// On a shared parent it has become shared itself, whatever the clone was.
	if err := setPropagation(root, propagation); err != nil {
		unix.Close(root)
		return -1, err
	}
	return root, nil
}

func (h *Host) closeFiles() {
	for _, fd := range []*int{&h.fsDir, &h.template, &h.stageDir, &h.slotsDir, &h.state} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	if h.users != nil {
		h.users.Close()
	}
	if h.lock != nil {
		h.lock.Close() // gives the lock back
	}
}
