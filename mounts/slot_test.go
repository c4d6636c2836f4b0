package mounts

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"berth"
)

var (
	memberView = berth.View{Workspace: "acme", Machine: "i1", Chat: "c1", User: "ann", Experts: []berth.ID{"profy"}}
	keyView    = berth.View{Workspace: "acme", Machine: "i2", Chat: "c2", EndUser: "eu", Experts: []berth.ID{"profy"}}
)

// write puts a file into a tree, behind the mounts' back.
func write(t *testing.T, h *Host, name, data string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.FSDir(), name), []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mustMount(t *testing.T, h *Host, id berth.ID, v berth.View) {
	t.Helper()
	if err := h.MountView(t.Context(), id, v); err != nil {
		t.Fatalf("MountView: %v", err)
	}
}

func mustSlot(t *testing.T, h *Host) berth.ID {
	t.Helper()
	id, err := h.NewSlot(t.Context())
	if err != nil {
		t.Fatalf("NewSlot: %v", err)
	}
	return id
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestMemberViewAppearsInRunningContainer(t *testing.T) {
	o := testOptions(t.TempDir())
	o.Template = t.TempDir()
	if err := os.WriteFile(filepath.Join(o.Template, "README"), []byte("template"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, o)
	id := mustSlot(t, h)
	c := newContainer(t, h, id)
	want(t, "before the claim", c.ask("ls user"), "[]")
	want(t, "before the claim", c.ask("put user/x"), "EROFS")
	mustMount(t, h, id, memberView)
	write(t, h, "acme/members/ann/hello", "hi")
	write(t, h, "acme/shared/team", "all")
	want(t, "home", c.ask("ls user"), "[project workspace]")
	want(t, "workspace", c.ask("ls user/workspace"), "[hello shared]")
	want(t, "shared", c.ask("cat user/workspace/shared/team"), "all")
	want(t, "template", c.ask("cat user/project/README"), "template")
	want(t, "write to the template", c.ask("put user/project/x"), "EROFS")
	want(t, "write to the home", c.ask("put user/x"), "written")
	want(t, "write to the disk", c.ask("put user/workspace/y"), "written")
	if _, err := os.Stat(filepath.Join(h.FSDir(), "acme/members/ann/y")); err != nil {
		t.Errorf("the file is not in the member's tree: %v", err)
	}
	mustMount(t, h, id, memberView) // again: nothing more is mounted
	mounts, err := mountsBelow(filepath.Join(h.opts.State, slotsName, string(id)))
	if err != nil || len(mounts) != 4 {
		t.Errorf("got mounts %v, %v; want 4", mounts, err)
	}
	if err := h.ReleaseSlot(t.Context(), id); err != nil {
		t.Fatalf("ReleaseSlot: %v", err)
	}
	want(t, "after the release", c.ask("ls user"), "ENOENT")
	if err := h.ReleaseSlot(t.Context(), id); err != nil {
		t.Errorf("ReleaseSlot again: %v", err)
	}
}

func TestKeyViewGrowsWithExperts(t *testing.T) {
	h := newHost(t, testOptions(t.TempDir()))
	id := mustSlot(t, h)
	c := newContainer(t, h, id)
	mustMount(t, h, id, keyView)
	write(t, h, "acme/end_users/eu/session-roots/c2/f", "data")
	want(t, "workspace", c.ask("ls user/workspace"), "[profy]")
	want(t, "session", c.ask("cat user/workspace/profy/c2/f"), "data")
	more := keyView
	more.Experts = []berth.ID{"coder"}
	mustMount(t, h, id, more)
	want(t, "workspace", c.ask("ls user/workspace"), "[coder profy]")
	want(t, "second expert", c.ask("cat user/workspace/coder/c2/f"), "data")
	want(t, "first expert", c.ask("cat user/workspace/profy/c2/f"), "data")
	infos, err := h.Slots(t.Context())
	if err != nil || len(infos) != 1 || !slices.Equal(infos[0].View.Experts, []berth.ID{"profy", "coder"}) {
		t.Errorf("Slots: got %+v, %v", infos, err)
	}
}

func TestSlotServesOneClaim(t *testing.T) {
	h := newHost(t, testOptions(t.TempDir()))
	id := mustSlot(t, h)
	mustMount(t, h, id, memberView)
	for _, change := range []func(*berth.View){
		func(v *berth.View) { v.Workspace = "evil" },
		func(v *berth.View) { v.Machine = "i9" },
		func(v *berth.View) { v.Chat = "c9" },
		func(v *berth.View) { v.User = "eve" },
		func(v *berth.View) { v.User, v.EndUser = "", "ann" },
	} {
		v := memberView
		change(&v)
		if err := h.MountView(t.Context(), id, v); !errors.Is(err, fs.ErrExist) {
			t.Errorf("claim by %+v: got %v, want fs.ErrExist", v, err)
		}
	}
	for _, v := range []berth.View{{}, {Workspace: "..", Machine: "m", Chat: "c", User: "u"}} {
		if err := h.MountView(t.Context(), id, v); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("view %+v: got %v, want fs.ErrInvalid", v, err)
		}
	}
	if err := h.MountView(t.Context(), "nosuch", memberView); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown slot: got %v, want fs.ErrNotExist", err)
	}
}

// A container sees all of a view or none of it, and no two slots' mounts mix.
func TestSlotsAreApart(t *testing.T) {
	h := newHost(t, testOptions(t.TempDir()))
	a, b := mustSlot(t, h), mustSlot(t, h)
	ca, cb := newContainer(t, h, a), newContainer(t, h, b)
	mustMount(t, h, a, memberView)
	mustMount(t, h, b, keyView)
	want(t, "machine of a member", ca.ask("ls user/workspace"), "[shared]")
	want(t, "machine of a key", cb.ask("ls user/workspace"), "[profy]")
	mounts, err := mountsBelow(h.FSDir())
	if err != nil || len(mounts) != 1 {
		t.Errorf("mounts in the file system itself: %v, %v; want only its own", mounts, err)
	}
}

func TestHostileLinksMoveNoMount(t *testing.T) {
	victim := t.TempDir()
	link := func(t *testing.T, name string) {
		t.Helper()
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		lay  func(t *testing.T, h *Host, slot string)
	}{
		{"slot's home", func(t *testing.T, h *Host, slot string) { link(t, slot+"/home") }},
		{"slot's home/user", func(t *testing.T, h *Host, slot string) { link(t, slot+"/home/user") }},
		{"tree's root", func(t *testing.T, h *Host, slot string) { link(t, h.FSDir()+"/acme/members/ann") }},
		{"tree's parent", func(t *testing.T, h *Host, slot string) { link(t, h.FSDir()+"/acme/members") }},
		{"mount point in the home", func(t *testing.T, h *Host, slot string) { link(t, h.FSDir()+"/acme/machines/i1/workspace") }},
		{"mount point in a tree", func(t *testing.T, h *Host, slot string) { link(t, h.FSDir()+"/acme/members/ann/shared") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t, testOptions(t.TempDir()))
			id := mustSlot(t, h)
			if err := h.attachTrees(t.Context(), memberView); err != nil {
				t.Fatal(err)
			}
			slot := filepath.Join(h.opts.State, slotsName, string(id))
			tc.lay(t, h, slot)
			h.fs = noTrees{} // the links must stay
			if err := h.MountView(t.Context(), id, memberView); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
				t.Errorf("MountView: got %v, want ELOOP or ENOTDIR", err)
			}
			for _, dir := range []string{victim, slot} {
				if mounts, err := mountsBelow(dir); err != nil || len(mounts) > 0 {
					t.Errorf("mounts at %s: %v, %v", dir, mounts, err)
				}
			}
			os.Remove(slot + "/home/user")
			os.Remove(slot + "/home")
		})
	}
}

type noTrees struct{ dirTrees }

func (noTrees) AttachTree(context.Context, berth.Tree, ...string) error { return nil }

func TestNewSlotLayout(t *testing.T) {
	h := newHost(t, testOptions(t.TempDir()))
	dir := filepath.Join(h.opts.State, slotsName, string(mustSlot(t, h)))
	for name, want := range map[string]struct {
		mode fs.FileMode
		uid  uint32
	}{
		"": {0o711, 0}, "home": {0o755, 0}, "home/user": {0o755, 0}, "ctl": {0o711, gatewayUID},
	} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		if fs.FileMode(st.Mode&0o777) != want.mode || st.Uid != want.uid {
			t.Errorf("%q: got mode %o of %d, want %o of %d", name, st.Mode&0o777, st.Uid, want.mode, want.uid)
		}
	}
}

func TestGatewayViewIsMapped(t *testing.T) {
	h := newHost(t, testOptions(t.TempDir()))
	if !h.IDMapped() {
		t.Fatal("the view is not id-mapped")
	}
	if err := h.attachTrees(t.Context(), memberView); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(h.opts.State, viewName, "acme/members/ann"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Uid != gatewayUID || st.Gid != gatewayUID {
		t.Errorf("owner in the view: got %d:%d, want %d", st.Uid, st.Gid, gatewayUID)
	}
}

// Without id-mapped mounts the gateway runs as the machines' user.
func TestGatewayViewWithoutMapping(t *testing.T) {
	h, err := Prepare(testOptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	h.users.Close()
	h.users = nil
	if err := unix.Mount("tmpfs", h.FSDir(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeHost(t, h) })
	if err := h.Start(t.Context(), dirTrees{h.FSDir()}); err != nil {
		t.Fatal(err)
	}
	if h.IDMapped() {
		t.Error("the view says that it is id-mapped")
	}
	if err := h.attachTrees(t.Context(), memberView); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{viewName + "/acme/members/ann", slotsName + "/" + string(mustSlot(t, h)) + "/ctl"} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(h.opts.State, name), &st); err != nil || st.Uid != machineUID {
			t.Errorf("owner of %s: got %d, %v; want %d", name, st.Uid, err, machineUID)
		}
	}
}
