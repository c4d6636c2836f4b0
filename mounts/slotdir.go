package mounts

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"berth"
)

// removeSlotDirs removes the directories of a slot. Only what a slot is made of
// goes, name by name and following nothing: a tree that is still mounted stops
// it (EBUSY) and is never looked into.
func (h *Host) removeSlotDirs(id berth.ID) error {
	dir, err := openDir(h.slotsDir, string(id), true)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot remove slot %s: %w", id, err)
	}
	defer unix.Close(dir)
	// Sockets that the gateway left. It could still be making some.
	for range 3 {
		if err = emptyDir(dir, "ctl"); err == nil {
			err = rmdir(dir, "ctl")
		}
		if !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
	}
	if err == nil {
		err = errors.Join(rmdir(dir, homeUser), rmdir(dir, "home"), rmdir(h.slotsDir, string(id)))
	}
	if err != nil {
		return fmt.Errorf("cannot remove slot %s: %w", id, err)
	}
	return nil
}

func rmdir(at int, name string) error {
	err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return &os.PathError{Op: "rmdir", Path: name, Err: err}
}

// emptyDir removes what is directly in a directory, save directories that are
// not empty.
func emptyDir(at int, name string) error {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		err := unix.Unlinkat(fd, n, 0)
		if errors.Is(err, unix.EISDIR) {
			err = rmdir(fd, n)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// slotDirs lists the slots there are directories of.
func (h *Host) slotDirs() ([]berth.ID, error) {
	fd, err := unix.Openat(h.slotsDir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot list slots: %w", err)
	}
	dir := os.NewFile(uintptr(fd), slotsName)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("cannot list slots: %w", err)
	}
	var ids []berth.ID
	for _, n := range names {
		id, err := berth.ParseID("slot", n)
		if err != nil {
			h.log.Warn("Cannot tell whose directory this is, it stays", "directory", n)
			continue
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// removeAllSlots removes slots that no container sees any more.
func (h *Host) removeAllSlots() error {
	ids, err := h.slotDirs()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := h.removeSlotDirs(id); err != nil {
			// Left for the operator: it is none that a claim could get.
			h.log.Warn("Cannot remove an old slot", "slot", id, "cause", err)
		}
	}
	infos, err := h.readJournal()
	if err != nil {
		return err
	}
	for id := range infos {
		if err := h.removeJournal(id); err != nil {
			return err
		}
	}
	return nil
}
