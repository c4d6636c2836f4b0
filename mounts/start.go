package mounts

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Start takes the file system, which must be mounted at FSDir by now, mounts the
// gateway's view of it, and brings back the views of slots that were claimed
// when an earlier process died. A slot that cannot be brought back is logged and
// stays claimed; MountView tries again.
func (h *Host) Start(ctx context.Context, trees Trees) error {
	h.fs = trees
	if err := h.openFS(); err != nil {
		return fmt.Errorf("cannot use file system at %s: %w", h.FSDir(), err)
	}
	if err := h.mountGatewayView(); err != nil {
		return fmt.Errorf("cannot mount %s: %w", viewName, err)
	}
	return h.recoverSlots(ctx)
}

// FSDir is where the file system must be mounted.
func (h *Host) FSDir() string { return filepath.Join(h.opts.State, fsPoint) }

// IDMapped says whether STATE/view shows the machines' files as the gateway's.
// Where it does not, the gateway must run as the machines' user.
func (h *Host) IDMapped() bool { return h.idmapped }

func (h *Host) openFS() error {
	dir, err := openDir(h.state, fsPoint, false)
	if err != nil {
		return err
	}
	h.fsDir = dir
	on, err1 := mountOf(dir)
	under, err2 := mountOf(h.state)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if on == under {
		return errors.New("nothing is mounted there")
	}
	return nil
}

// mountGatewayView mounts the file system at view, with owners mapped if the
// kernel and the file system allow it.
func (h *Host) mountGatewayView() error {
	root, err := cloneMount(h.fsDir, attrTree)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if h.users != nil {
		err := unix.MountSetattr(root, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
			Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(h.users.Fd()),
		})
		h.idmapped = err == nil
		if err != nil {
			h.log.Info("The gateway runs as the machines' user: owners cannot be mapped for it", "cause", err)
		}
	}
	dir, err := openDir(h.state, viewName, true)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return moveMount(root, dir, 0)
}

// recoverSlots takes over the slots that are written down, and removes others.
func (h *Host) recoverSlots(ctx context.Context) error {
	infos, err := h.readJournal()
	if err != nil {
		return err
	}
	ids, err := h.slotDirs()
	if err != nil {
		return err
	}
	for _, id := range ids {
		info, known := infos[id]
		delete(infos, id)
		if !known {
			if err := h.dropSlot(id); err != nil {
				h.log.Warn("Cannot remove a slot that was not finished", "slot", id, "cause", err)
			}
			continue
		}
		if info.View != nil {
			if err := h.mountView(ctx, id, *info.View); err != nil {
				h.log.Error("Cannot bring back the view of a slot", "slot", id, "machine", info.View.Machine, "cause", err)
			}
		}
		h.mu.Lock()
		h.slots[id] = &slot{info: info}
		h.mu.Unlock()
	}
	for id := range infos { // their directories are gone
		if err := h.removeJournal(id); err != nil {
			return err
		}
	}
	return nil
}

// HasSlots says whether there is a slot, which a container may be behind: in this
// run, or before Start in an earlier one.
func (h *Host) HasSlots() bool {
	infos, err := h.readJournal()
	return err != nil || len(infos) > 0
}

// Unmount takes every mount away: the slots with them, since no container sees
// them again, the gateway's view, and slots itself. The file system stays.
// Nothing but Close may be called meanwhile or later.
func (h *Host) Unmount() error {
	infos, err := h.Slots(context.Background())
	errs := []error{err}
	for _, info := range infos {
		errs = append(errs, h.ReleaseSlot(context.Background(), info.Slot))
	}
	for _, name := range []string{viewName, stageName, slotsName} {
		errs = append(errs, detachAll(filepath.Join(h.opts.State, name)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot unmount: %w", err)
	}
	return nil
}

// Close gives the state directory back to other processes. Without an Unmount
// before, slots stay for the next Prepare and Start, and with them containers.
func (h *Host) Close() { h.closeFiles() }
