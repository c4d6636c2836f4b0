package mounts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"berth"
)

// A place is one mount of a view that is to be made.
type place struct {
	path     string     // below home/user
	tree     berth.Tree // the zero Tree is the template
	template bool
}

// places returns the mounts of a view, outer before inner.
func (h *Host) places(v berth.View) []place {
	var ps []place
	for _, p := range v.Places() {
		ps = append(ps, place{path: p.Path, tree: p.Tree})
	}
	if h.template >= 0 {
		ps = append(ps, place{path: "project", template: true})
	}
	return ps
}

// mountView makes the slot show the view: as a whole if it shows none, or one
// that a dead process mounted, which it replaces; else what is missing. The slot
// is locked.
func (h *Host) mountView(ctx context.Context, id berth.ID, v berth.View) error {
	if err := h.attachTrees(ctx, v); err != nil {
		return err
	}
	target, err := openDir(h.slotsDir, string(id)+"/"+homeUser, false)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", homeUser, err)
	}
	defer unix.Close(target)
	on, err := mountOf(target)
	if err != nil {
		return err
	}
	if on == h.slotsMount {
		return h.putView(id, v, target, false)
	}
	ps := h.places(v)
	if alive, err := h.shows(target, ps[0]); err != nil || !alive {
		return h.putView(id, v, target, true)
	}
	for _, p := range ps[1:] {
		if err := h.ensure(target, p); err != nil {
			return err
		}
	}
	return nil
}

// shows says whether an open directory is the root of what a place shows. A dead
// file system is another one than ours, or cannot be asked.
func (h *Host) shows(dir int, p place) (bool, error) {
	source, err := h.source(p)
	if err != nil {
		return false, err
	}
	defer unix.Close(source)
	have, err1 := inodeOf(dir)
	want, err2 := inodeOf(source)
	return have == want, errors.Join(err1, err2)
}

func (h *Host) attachTrees(ctx context.Context, v berth.View) error {
	points := v.MountPoints()
	var done []berth.Tree
	for _, p := range v.Places() {
		if slices.Contains(done, p.Tree) {
			continue
		}
		if err := h.fs.AttachTree(ctx, p.Tree, points[p.Tree]...); err != nil {
			return err
		}
		done = append(done, p.Tree)
	}
	return nil
}

// putView builds the view at the private place and moves it into the slot in
// one step, beneath the dead one if there is one, which is then taken away.
func (h *Host) putView(id berth.ID, v berth.View, target int, dead bool) (err error) {
	stage, err := h.makeStage(id)
	if err != nil {
		return fmt.Errorf("cannot set up %s: %w", stageName, err)
	}
	defer func() { err = errors.Join(err, h.removeStage(id, stage)) }()
	top, err := h.buildView(v, stage)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	if dead {
		err = h.replaceView(id, top, target)
	} else {
		err = moveMount(top, target, 0)
	}
	if err != nil {
		return err
	}
	return verify(h.slotsDir, string(id)+"/"+homeUser, top)
}

// replaceView moves the view under what is mounted in the slot now, which is
// then taken away, so that at no time there is neither.
func (h *Host) replaceView(id berth.ID, top, target int) error {
	err := h.beneath(top, target)
	if err == nil {
		return detach(target)
	}
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// The kernel is older than 6.5.
	if err := h.unmountView(id); err != nil {
		return err
	}
	bare, err := openDir(h.slotsDir, string(id)+"/"+homeUser, false)
	if err != nil {
		return err
	}
	defer unix.Close(bare)
	return moveMount(top, bare, 0)
}

// buildView mounts the whole view at a directory of stage and returns the root
// of its outermost mount.
func (h *Host) buildView(v berth.View, stage int) (int, error) {
	ps := h.places(v)
	top, err := h.mountPlace(ps[0], stage)
	if err != nil {
		return -1, err
	}
	for _, p := range ps[1:] {
		if err := h.ensure(top, p); err != nil {
			unix.Close(top)
			return -1, err
		}
	}
	return top, nil
}

// ensure mounts a place of a view whose outermost mount has its root open as
// home, unless it is mounted already.
func (h *Host) ensure(home int, p place) error {
	dir, err := openDir(home, p.path, false)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", p.path, err)
	}
	defer unix.Close(dir)
	mounted, err := h.shows(dir, p)
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", p.path, err)
	}
	if mounted {
		return nil
	}
	root, err := h.mountPlace(p, dir)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	return verify(home, p.path, root)
}

// mountPlace mounts a place's tree on an open directory and returns the root of
// the new mount.
func (h *Host) mountPlace(p place, dir int) (int, error) {
	source, err := h.source(p)
	if err != nil {
		return -1, err
	}
	defer unix.Close(source)
	attrs := uint64(attrTree)
	if p.template {
		attrs = attrTemplate
	}
	root, err := cloneMount(source, attrs)
	if err == nil {
		if err = moveMount(root, dir, 0); err == nil {
			return root, nil
		}
		unix.Close(root)
	}
	return -1, fmt.Errorf("cannot mount %s: %w", p.name(), err)
}

func (p place) name() string {
	if p.template {
		return "the template"
	}
	return "tree " + p.tree.String()
}

// source opens what a place shows. A tree's root must be reached through
// directories of the file system itself.
func (h *Host) source(p place) (int, error) {
	if p.template {
		return unix.FcntlInt(uintptr(h.template), unix.F_DUPFD_CLOEXEC, 0)
	}
	fd, err := openDir(h.fsDir, p.tree.String(), true)
	if err != nil {
		return -1, fmt.Errorf("cannot open %s: %w", p.name(), err)
	}
	return fd, nil
}

// verify checks that a path below an open directory leads to the root of the
// mount that was put there.
func verify(at int, path string, root int) error {
	now, err := openDir(at, path, false)
	if err != nil {
		return fmt.Errorf("cannot check the mount at %s: %w", path, err)
	}
	defer unix.Close(now)
	have, err1 := mountOf(now)
	want, err2 := mountOf(root)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("cannot check the mount at %s: %w", path, err)
	}
	if have != want {
		return fmt.Errorf("cannot check the mount at %s: another one is in its place: %w", path, fs.ErrInvalid)
	}
	return nil
}

// unmountView takes away all that is mounted in a slot.
func (h *Host) unmountView(id berth.ID) error {
	for range 100 {
		top, err := openDir(h.slotsDir, string(id)+"/"+homeUser, false)
		if err != nil {
			return fmt.Errorf("cannot open %s: %w", homeUser, err)
		}
		on, err := mountOf(top)
		if err == nil && on != h.slotsMount {
			// With the outermost go those mounted on it, here and in the container.
			err = detach(top)
		}
		unix.Close(top)
		if err != nil {
			return fmt.Errorf("cannot unmount %s: %w", homeUser, err)
		}
		if on == h.slotsMount {
			return nil
		}
	}
	return fmt.Errorf("cannot unmount %s: something keeps mounting on it", homeUser)
}

func (h *Host) makeStage(id berth.ID) (int, error) {
	if err := unix.Mkdirat(h.stageDir, string(id), 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return openDir(h.stageDir, string(id), true)
}

// removeStage takes away what is still mounted at the private place: all of a
// view that could not be moved.
func (h *Host) removeStage(id berth.ID, stage int) error {
	defer unix.Close(stage)
	bare, err := mountOf(stage)
	if err != nil {
		return err
	}
	top, err := openDir(h.stageDir, string(id), false)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	if on, err := mountOf(top); err != nil || on != bare {
		if err := errors.Join(err, detach(top)); err != nil {
			return fmt.Errorf("cannot unmount %s: %w", stageName, err)
		}
	}
	return rmdir(h.stageDir, string(id))
}
