package mounts

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth"
	"berth/fusefs"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

// startFUSE runs a Host on the real file system.
func startFUSE(state string, store *mem.Store) (*Host, *fusefs.FS, error) {
	h, err := Prepare(testOptions(state))
	if err != nil {
		return nil, nil, err
	}
	guard, err := fusefs.StartGuard(rerun(roleGuard))
	if err != nil {
		h.Close()
		return nil, nil, err
	}
	f, err := fusefs.Open(context.Background(), fusefs.Options{
		Guard:    guard,
		StateDir: state, Store: store, Mountpoint: h.FSDir(), IDMapped: true,
		Owner: &fusefs.Owner{UID: machineUID, GID: machineUID}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		h.Close()
		return nil, nil, err
	}
	return h, f, h.Start(context.Background(), FUSE(f))
}

func newFUSE(t *testing.T, state string, store *mem.Store) (*Host, *fusefs.FS) {
	t.Helper()
	h, f, err := startFUSE(state, store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Unmount(); err != nil {
			t.Errorf("Unmount: %v", err)
		}
		h.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := f.Close(ctx); err != nil {
			t.Errorf("close file system: %v", err)
		}
	})
	return h, f
}

// serveFUSEHost holds the real file system until it is killed.
func serveFUSEHost(state string) error {
	h, _, err := startFUSE(state, new(mem.Store))
	if err != nil {
		return err
	}
	for line := bufio.NewScanner(os.Stdin); line.Scan(); {
		id, err := h.NewSlot(context.Background())
		if err == nil {
			err = h.MountView(context.Background(), id, memberView)
		}
		fmt.Println(id, err)
	}
	return nil
}

func TestFUSEViewReachesContainerAndGateway(t *testing.T) {
	store := new(mem.Store)
	state := t.TempDir()
	// The gateway's user comes through.
	if err := errors.Join(os.Chmod(state, 0o711), os.Chmod(filepath.Dir(state), 0o711)); err != nil {
		t.Fatal(err)
	}
	h, f := newFUSE(t, state, store)
	if !h.IDMapped() || !f.Passthrough() {
		t.Errorf("id-mapped %v, passthrough %v; want both", h.IDMapped(), f.Passthrough())
	}
	id := mustSlot(t, h)
	c := newContainer(t, h, id)
	mustMount(t, h, id, memberView)
	want(t, "home", c.ask("ls user"), "[project workspace]")
	want(t, "workspace", c.ask("ls user/workspace"), "[shared]")
	want(t, "write to the disk", c.ask("put user/workspace/f"), "written")
	want(t, "write to shared", c.ask("put user/workspace/shared/s"), "written")
	want(t, "write to the home", c.ask("put user/h"), "written")
	want(t, "write to an unmounted place", c.ask("put user/project/x"), "EROFS")

	view := filepath.Join(h.opts.State, viewName)
	asGateway(t, "cat "+view+"/acme/members/ann/f", "from the machine")
	asGateway(t, "echo -n hers > "+view+"/acme/members/ann/g && stat -c %u "+view+"/acme/members/ann/g", fmt.Sprintln(gatewayUID))
	want(t, "the gateway's file", c.ask("cat user/workspace/g"), "hers")
	if err := f.Flush(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	for key, content := range map[string]string{
		"acme/members/ann/f": "from the machine", "acme/members/ann/g": "hers", "acme/shared/s": "from the machine",
	} {
		body, _, err := store.Get(t.Context(), key, object.GetOptions{})
		if err != nil {
			t.Errorf("%s is not in the bucket: %v", key, err)
			continue
		}
		data, _ := io.ReadAll(body)
		body.Close()
		want(t, key, string(data), content)
	}
	if err := h.ReleaseSlot(t.Context(), id); err != nil {
		t.Errorf("ReleaseSlot: %v", err)
	}
	want(t, "after the release", c.ask("ls user"), "ENOENT")
}

// asGateway runs a shell command as the gateway's user.
func asGateway(t *testing.T, command, want string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: gatewayUID, Gid: gatewayUID}}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != want {
		t.Errorf("%s: got %q, %v; want %q", command, out, err, want)
	}
}

func TestFUSEViewComesBackAfterKill(t *testing.T) {
	state := t.TempDir()
	run := startHelper(t, rerun(roleFUSE, state))
	id := askSlot(t, run, "claim")
	c := newContainerOf(t, filepath.Join(state, slotsName, string(id), "home"))
	want(t, "write", c.ask("put user/workspace/f"), "written")
	want(t, "open", c.ask("hold user/workspace/f"), "held")
	for range 3 {
		run.kill()
		want(t, "read while nobody serves", c.ask("cat user/workspace/f"), "ENOTCONN")
		c.send("watch user/workspace/f")
		start := time.Now()
		run = startHelper(t, rerun(roleFUSE, state))
		askSlot(t, run, "claim another")
		// Never an empty directory: a tool could take that for the truth.
		want(t, "what was seen meanwhile", c.answer(), "[ENOTCONN [f shared]]")
		want(t, "read after the restart", c.ask("cat user/workspace/f"), "from the machine")
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("the view was back after %v, want 3 s at most", took)
		}
		want(t, "write after the restart", c.ask("put user/workspace/f"), "written")
	}
	run.kill()
	h, _ := newFUSE(t, state, new(mem.Store))
	want(t, "read at the end", c.ask("cat user/workspace/f"), "from the machine")
	if infos, err := h.Slots(t.Context()); err != nil || len(infos) != 4 {
		t.Errorf("Slots: got %d, %v; want 4", len(infos), err)
	}
}

// A name that a view mounts something on cannot be taken by a link that lies in
// the bucket.
func TestFUSETreesHoldNoLinkThatMovesAMount(t *testing.T) {
	victim := t.TempDir()
	h, _ := newFUSE(t, t.TempDir(), new(mem.Store))
	id := mustSlot(t, h)
	c := newContainer(t, h, id)
	mustMount(t, h, id, keyView)
	home := filepath.Join(h.FSDir(), "acme/machines/i2")
	for _, name := range []string{"workspace", "project"} {
		if err := os.Remove(filepath.Join(home, name)); !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EROFS) {
			t.Errorf("remove of mount point %s: got %v, want EBUSY or EROFS", name, err)
		}
	}
	// The second expert's place is taken by a link before it is mounted.
	if err := os.Symlink(victim, filepath.Join(home, "workspace", "coder")); !errors.Is(err, unix.EROFS) {
		t.Errorf("symlink beside a mount point: got %v, want EROFS", err)
	}
	more := keyView
	more.Experts = []berth.ID{"coder"}
	mustMount(t, h, id, more)
	want(t, "second expert", c.ask("put user/workspace/coder/c2/x"), "written")
	if names, err := lsNames(victim); err != nil || names != "[]" {
		t.Errorf("the victim: got %s, %v; want nothing in it", names, err)
	}
	want(t, "beside the session", c.ask("put user/workspace/coder/x"), "EROFS")
}
