package mounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth"
)

// A slot is one directory below slots and what is mounted there.
type slot struct {
	mu   sync.Mutex // protects gone, and the slot's directory, journal and mounts
	gone bool

	info SlotInfo // read under Host.mu, changed under that and mu
}

// maxExperts is how many experts one chat can have.
const maxExperts = 64

// homeUser is where a view is mounted, below the slot's directory.
const homeUser = "home/user"

// errNoSlot says that a slot does not exist (any more).
func errNoSlot(verb string, id berth.ID) error {
	return fmt.Errorf("cannot %s slot %s: %w", verb, id, fs.ErrNotExist)
}

// NewSlot makes a slot with nothing mounted in it.
func (h *Host) NewSlot(ctx context.Context) (berth.ID, error) {
	id := berth.NewSlotID()
	s := &slot{info: SlotInfo{Slot: id, Since: time.Now().UTC()}}
	err := h.makeSlotDirs(id)
	if err == nil {
		err = h.writeJournal(s.info)
	}
	if err != nil {
		return "", fmt.Errorf("cannot make slot: %w", errors.Join(err, h.removeSlotDirs(id)))
	}
	h.mu.Lock()
	h.slots[id] = s
	h.mu.Unlock()
	return id, nil
}

// Slots returns all slots, in the order of their ids. It waits for none of them.
func (h *Host) Slots(ctx context.Context) ([]SlotInfo, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	infos := make([]SlotInfo, 0, len(h.slots))
	for _, s := range h.slots {
		infos = append(infos, s.info)
	}
	slices.SortFunc(infos, func(a, b SlotInfo) int { return cmp.Compare(a.Slot, b.Slot) })
	return infos, nil
}

func (h *Host) slot(id berth.ID) *slot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.slots[id]
}

// MountView mounts a view into a slot, which serves this one claim in its life:
// another machine, chat or owner later is fs.ErrExist. The call can be repeated,
// with more experts too, and then mounts what is missing.
func (h *Host) MountView(ctx context.Context, id berth.ID, v berth.View) error {
	if err := v.Check(); err != nil {
		return err
	}
	s := h.slot(id)
	if s == nil {
		return errNoSlot("mount a view into", id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return errNoSlot("mount a view into", id)
	}
	if s.info.View != nil && !sameClaim(*s.info.View, v) {
		return fmt.Errorf("cannot mount a view into slot %s: machine %s has claimed it: %w", id, s.info.View.Machine, fs.ErrExist)
	}
	next := s.info
	next.View = merge(s.info.View, v)
	if len(next.View.Experts) > maxExperts {
		return fmt.Errorf("cannot mount a view into slot %s: it has more than %d experts: %w", id, maxExperts, fs.ErrInvalid)
	}
	// Written down first: a restart finishes what was begun.
	if err := h.writeJournal(next); err != nil {
		return err
	}
	h.mu.Lock()
	s.info = next
	h.mu.Unlock()
	if err := h.mountView(ctx, id, *next.View); err != nil {
		return fmt.Errorf("cannot mount the view of machine %s into slot %s: %w", v.Machine, id, err)
	}
	return nil
}

// sameClaim compares all of two views but the experts.
func sameClaim(a, b berth.View) bool {
	return a.Workspace == b.Workspace && a.Machine == b.Machine && a.Chat == b.Chat && a.User == b.User && a.EndUser == b.EndUser
}

// merge returns the view with the experts of the old one, if any, before the
// new ones.
func merge(old *berth.View, v berth.View) *berth.View {
	experts := []berth.ID{}
	if old != nil {
		experts = append(experts, old.Experts...)
	}
	for _, e := range v.Experts {
		if !slices.Contains(experts, e) {
			experts = append(experts, e)
		}
	}
	v.Experts = experts
	return &v
}

// ReleaseSlot unmounts what is in a slot and removes it. A container that still
// runs has no home any more. A slot that does not exist is no error.
func (h *Host) ReleaseSlot(ctx context.Context, id berth.ID) error {
	s := h.slot(id)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return nil
	}
	err := h.dropSlot(id)
	if err != nil {
		return fmt.Errorf("cannot release slot %s: %w", id, err)
	}
	s.gone = true
	h.mu.Lock()
	delete(h.slots, id)
	h.mu.Unlock()
	return nil
}

// dropSlot unmounts what is in a slot and removes its directory and journal.
func (h *Host) dropSlot(id berth.ID) error {
	if err := h.unmountView(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The directory goes last: while it is there, a start looks at it.
	if err := h.removeJournal(id); err != nil {
		return err
	}
	return h.removeSlotDirs(id)
}

// makeSlotDirs makes the directories of a slot that does not exist.
func (h *Host) makeSlotDirs(id berth.ID) error {
	if err := unix.Mkdirat(h.slotsDir, string(id), 0o711); err != nil {
		return err
	}
	dir, err := openDir(h.slotsDir, string(id), true)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	uid, gid := int(h.opts.GatewayUID), int(h.opts.GatewayGID)
	if !h.idmapped { // the gateway runs as the machines' user, to whom ctl is read-only
		uid, gid = int(h.opts.MachineUID), int(h.opts.MachineGID)
	}
	for _, d := range []struct {
		name     string
		mode     uint32
		uid, gid int
	}{
		{"home", 0o755, 0, 0}, {homeUser, 0o755, 0, 0},
		{"ctl", 0o711, uid, gid},
	} {
		err := unix.Mkdirat(dir, d.name, d.mode)
		if err == nil { // the umask may have taken bits away
			err = unix.Fchmodat(dir, d.name, d.mode, 0)
		}
		if err == nil {
			err = unix.Fchownat(dir, d.name, d.uid, d.gid, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	return unix.Fchmodat(h.slotsDir, string(id), 0o711, 0)
}
