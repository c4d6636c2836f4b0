package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth"
)

// startKillable runs a Host in a process of its own on a state directory.
func startKillable(t *testing.T, state string) *helper {
	t.Helper()
	return startHelper(t, rerun(roleHost, state))
}

func askSlot(t *testing.T, h *helper, what string) berth.ID {
	t.Helper()
	answer := h.ask("%s", what)
	id, ok := strings.CutSuffix(answer, " <nil>")
	if !ok {
		t.Fatalf("%s: %s", what, answer)
	}
	return berth.ID(id)
}

func TestViewsComeBackAfterKill(t *testing.T) {
	state := t.TempDir()
	slotHome := func(id berth.ID) string { return filepath.Join(state, slotsName, string(id), "home") }
	first := startKillable(t, state)
	claimed, pooled := askSlot(t, first, "claim"), askSlot(t, first, "new")
	c, p := newContainerOf(t, slotHome(claimed)), newContainerOf(t, slotHome(pooled))
	want(t, "write in the old run", c.ask("put user/workspace/old"), "written")
	if _, err := Prepare(testOptions(state)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Prepare while it runs: got %v, want fs.ErrExist", err)
	}
	first.kill()

	h := newHost(t, testOptions(state))
	write(t, h, "acme/members/ann/new", "fresh")
	want(t, "new file", c.ask("cat user/workspace/new"), "fresh")
	want(t, "workspace", c.ask("ls user/workspace"), "[new shared]") // another file system: the old file is not there
	want(t, "unclaimed slot", p.ask("ls user"), "[]")
	mounts, err := mountsBelow(slotHome(claimed))
	if err != nil || len(mounts) != 3 {
		t.Errorf("mounts in the slot: got %v, %v; want 3", mounts, err)
	}
	other := keyView
	mustMount(t, h, pooled, other)
	want(t, "claim of a slot of the old run", p.ask("ls user/workspace"), "[profy]")
	infos, err := h.Slots(t.Context())
	if err != nil || len(infos) != 2 {
		t.Errorf("Slots: got %+v, %v; want 2", infos, err)
	}
}

func TestKilledManyTimes(t *testing.T) {
	state := t.TempDir()
	run := startKillable(t, state)
	id := askSlot(t, run, "claim")
	c := newContainerOf(t, filepath.Join(state, slotsName, string(id), "home"))
	for i := range 5 {
		run.kill()
		run = startKillable(t, state)
		askSlot(t, run, "new") // it is up
		want(t, fmt.Sprint("after kill ", i), c.ask("put user/workspace/f"), "written")
	}
	run.kill()
	h := newHost(t, testOptions(state))
	mounts, err := mountsBelow(state)
	// fs, view, slots, stage, and three in the slot.
	if err != nil || len(mounts) != 7 {
		t.Errorf("mounts: got %v, %v; want 7", mounts, err)
	}
	if infos, _ := h.Slots(t.Context()); len(infos) != 6 {
		t.Errorf("got %d slots, want 6", len(infos))
	}
}

// mountDead mounts a FUSE file system whose server is gone.
func mountDead(t *testing.T, dir string) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	opts := fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("dead", dir, "fuse.berth", 0, opts); err != nil {
		t.Fatal(err)
	}
}

func TestDeadFileSystemIsReplaced(t *testing.T) {
	state := t.TempDir()
	run := startKillable(t, state)
	id := askSlot(t, run, "claim")
	home := filepath.Join(state, slotsName, string(id), "home")
	c := newContainerOf(t, home)
	run.kill()
	mountDead(t, home+"/user")
	mountDead(t, filepath.Join(state, fsPoint))
	mountDead(t, filepath.Join(state, viewName))
	want(t, "dead home", c.ask("ls user"), "ENOTCONN")
	newHost(t, testOptions(state))
	want(t, "home", c.ask("ls user"), "[project workspace]")
	want(t, "write", c.ask("put user/workspace/x"), "written")
}

// On a kernel before 6.5 the dead view goes before the new one comes.
func TestDeadViewIsReplacedOnOldKernel(t *testing.T) {
	h := newHost(t, testOptions(t.TempDir()))
	h.beneath = func(int, int) error { return fmt.Errorf("move_mount: %w", unix.EINVAL) }
	id := mustSlot(t, h)
	c := newContainer(t, h, id)
	mustMount(t, h, id, memberView)
	mountDead(t, filepath.Join(h.opts.State, slotsName, string(id), homeUser))
	want(t, "dead home", c.ask("ls user"), "ENOTCONN")
	mustMount(t, h, id, memberView)
	want(t, "home", c.ask("ls user/workspace"), "[shared]")
}

func TestReleaseOfDeadView(t *testing.T) {
	h := newHost(t, testOptions(t.TempDir()))
	id := mustSlot(t, h)
	mustMount(t, h, id, memberView)
	dir := filepath.Join(h.opts.State, slotsName, string(id))
	mountDead(t, dir+"/home/user")
	if err := h.ReleaseSlot(t.Context(), id); err != nil {
		t.Fatalf("ReleaseSlot: %v", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the slot's directory: got %v, want fs.ErrNotExist", err)
	}
}

// Without the shared mount no container can be behind a slot.
func TestSlotsOfAnEarlierBootGo(t *testing.T) {
	state := t.TempDir()
	h, err := startHost(testOptions(state))
	if err != nil {
		t.Fatal(err)
	}
	id := mustSlot(t, h)
	mustMount(t, h, id, memberView)
	ctl := filepath.Join(state, slotsName, string(id), "ctl")
	h.Close() // as if it had died, and then the host
	if err := os.WriteFile(filepath.Join(ctl, "agent.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mounts, err := mountsBelow(state)
	if err != nil {
		t.Fatal(err)
	}
	for range mounts {
		if left, _ := mountsBelow(state); len(left) > 0 {
			unix.Unmount(left[len(left)-1].point, unix.MNT_DETACH)
		}
	}
	h = newHost(t, testOptions(state))
	if infos, err := h.Slots(t.Context()); err != nil || len(infos) != 0 {
		t.Errorf("Slots: got %+v, %v; want none", infos, err)
	}
	if _, err := os.Lstat(filepath.Dir(ctl)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the slot's directory: got %v, want fs.ErrNotExist", err)
	}
}

// A slot that was begun or released half-way is cleared by the next start.
func TestUnfinishedSlotsGo(t *testing.T) {
	state := t.TempDir()
	run := startKillable(t, state)
	id := askSlot(t, run, "claim")
	run.kill()
	half := filepath.Join(state, slotsName, "shalf")
	journal := filepath.Join(state, journalName, string(id)+".json")
	for _, err := range []error{
		os.Mkdir(half, 0o711),
		os.Mkdir(filepath.Join(half, "ctl"), 0o711),
		os.WriteFile(journal, []byte(`{"slot":`), 0o600), // cut off
		os.WriteFile(filepath.Join(state, journalName, "sgone.json"), []byte(`{"slot":"sgone"}`), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	h := newHost(t, testOptions(state))
	if infos, err := h.Slots(t.Context()); err != nil || len(infos) != 0 {
		t.Errorf("Slots: got %+v, %v; want none", infos, err)
	}
	for _, dir := range []string{slotsName, journalName, stageName} {
		if names, err := lsNames(filepath.Join(state, dir)); err != nil || names != "[]" {
			t.Errorf("%s: got %s, %v; want nothing", dir, names, err)
		}
	}
}

func TestParseMounts(t *testing.T) {
	const info = `22 27 0:21 / /proc rw,relatime - proc proc rw
30 27 254:0 /a /st\040ate/slots rw,nosuid,nodev shared:7 master:2 - ext4 /dev/vda rw
31 30 0:40 /x /st\040ate/slots/s1/home/user rw shared:8 - fuse.berth berth rw
32 27 0:40 / /st\040ate/view//deleted rw - fuse.berth berth rw
33 27 0:40 / /st\040ate2 rw shared:9 - fuse.berth berth rw
nonsense
`
	got := fmt.Sprint(parseMounts(info, "/st ate"))
	want(t, "mounts", got, "[{/st ate/slots true} {/st ate/slots/s1/home/user true} {/st ate/view false}]")
}
