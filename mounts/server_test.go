package mounts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth"
	"berth/fusefs/object/mem"
)

const testToken = "correct horse battery staple"

// An installation is a served Host with everything behind it.
type installation struct {
	host   *Host
	fs     *memFS
	store  *mem.Store
	socket string
	client *Client
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	state := t.TempDir()
	in := &installation{host: newHost(t, testOptions(state)), store: new(mem.Store), socket: filepath.Join(state, "m.sock")}
	in.fs = newMemFS(in.host.FSDir())
	in.host.fs = in.fs
	server := &Server{
		Host: in.host, FileSystem: in.fs, Records: newRecords(t, recordsOptions(in.store, filepath.Join(state, "records"))),
		Token: testToken, PeerUID: gatewayUID, Logger: slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, served := make(chan struct{}), make(chan error, 1)
	go func() {
		served <- server.Serve(ctx, in.socket, func() error { close(ready); return nil })
	}()
	select {
	case <-ready:
	case err := <-served:
		t.Fatal(err)
	}
	in.client = NewClient(in.socket, testToken)
	t.Cleanup(func() {
		in.client.Close()
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return in
}

func TestClientRecordsContract(t *testing.T) {
	runRecordsContract(t, func(t *testing.T) berth.Records { return newInstallation(t).client })
}

func TestClientSlots(t *testing.T) {
	in := newInstallation(t)
	c, ctx := in.client, t.Context()
	id, err := c.NewSlot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	container := newContainer(t, in.host, id)
	if err := c.MountView(ctx, id, memberView); err != nil {
		t.Fatal(err)
	}
	want(t, "home", container.ask("ls user"), "[project workspace]")
	infos, err := c.SlotInfos(ctx)
	if err != nil || len(infos) != 1 || infos[0].Slot != id || infos[0].View == nil || infos[0].View.User != "ann" {
		t.Errorf("SlotInfos: got %+v, %v", infos, err)
	}
	if ids, err := c.Slots(ctx); err != nil || len(ids) != 1 || ids[0] != id {
		t.Errorf("Slots: got %v, %v; want %s", ids, err, id)
	}
	if err := c.MountView(ctx, id, keyView); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second claim: got %v, want fs.ErrExist", err)
	}
	if err := c.MountView(ctx, "sother", keyView); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown slot: got %v, want fs.ErrNotExist", err)
	}
	many := keyView
	for i := range maxExperts + 1 {
		many.Experts = append(many.Experts, berth.ID(fmt.Sprint("e", i)))
	}
	other, _ := c.NewSlot(ctx)
	if err := c.MountView(ctx, other, many); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("too many experts: got %v, want fs.ErrInvalid", err)
	}
	for range 2 {
		if err := c.ReleaseSlot(ctx, id); err != nil {
			t.Errorf("ReleaseSlot: %v", err)
		}
	}
}

func TestClientTrees(t *testing.T) {
	in := newInstallation(t)
	c, ctx := in.client, t.Context()
	tree := berth.MemberTree("acme", "ann")
	if err := c.AttachTree(ctx, tree); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(in.host.opts.State, viewName, "acme/members/ann/shared")); err != nil {
		t.Errorf("the tree does not appear in the view: %v", err)
	}
	write(t, in.host, "acme/members/ann/f", "one")
	mark, err := c.Checkpoint(ctx, []berth.Tree{tree})
	if err != nil {
		t.Fatal(err)
	}
	write(t, in.host, "acme/members/ann/f", "two")
	body, size, err := c.Before(ctx, tree, "f", mark)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	body.Close()
	if string(data) != "one" || size != 3 || err != nil {
		t.Errorf("Before: got %q (%d), %v; want one", data, size, err)
	}
	if _, _, err := c.Before(ctx, tree, "g", mark); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Before of a new file: got %v, want fs.ErrNotExist", err)
	}
	for _, path := range []string{"", "/", "a/", "/a", "../x", "a/../b", "a//b", "a\x00b", ".", strings.Repeat("x", maxPath+1)} {
		if _, _, err := c.Before(ctx, tree, path, mark); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("Before of %.20q: got %v, want fs.ErrInvalid", path, err)
		}
	}
	if err := errors.Join(c.Flush(ctx, tree.String()), c.Flush(ctx, "")); err != nil {
		t.Errorf("Flush: %v", err)
	}
	want(t, "flushed", fmt.Sprintf("%q", in.fs.flushed), `["acme/members/ann/" ""]`)
	status, err := c.Status(ctx)
	if err != nil || !strings.Contains(string(status), `"dirty_files":3`) {
		t.Errorf("Status: got %s, %v", status, err)
	}
	if err := c.RemoveTree(ctx, tree); err != nil {
		t.Errorf("RemoveTree: %v", err)
	}
	if _, err := os.Stat(filepath.Join(in.host.FSDir(), "acme/members/ann/f")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

func TestChangesArrive(t *testing.T) {
	in := newInstallation(t)
	in.fs.publish("old", 0)
	s, err := in.client.Changes(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	in.fs.publish("new", 0)
	changes, err := s.Next(t.Context())
	if err != nil || len(changes) != 1 || changes[0].Path != "new" || changes[0].Seq != 2 || s.Epoch() != "e1" {
		t.Errorf("Next: got %+v of epoch %q, %v; want the new change", changes, s.Epoch(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next that is cancelled: got %v, want context.Canceled", err)
	}
	s.Close()
	eventually(t, "the end of the stream in the server", func() bool { return in.fs.openReaders() == 0 })

	s, err = in.client.Changes(t.Context(), "e1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if changes, err := s.Next(t.Context()); err != nil || len(changes) != 2 {
		t.Errorf("Next after a resume: got %+v, %v; want both", changes, err)
	}
	if _, err := in.client.Changes(t.Context(), "e0", 1); !errors.Is(err, ErrReset) {
		t.Errorf("Changes of another epoch: got %v, want ErrReset", err)
	}
	in.fs.publish("x", 3)
	late, err := in.client.Changes(t.Context(), "e1", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if _, err := late.Next(t.Context()); !errors.Is(err, ErrReset) {
		t.Errorf("Next behind what is kept: got %v, want ErrReset", err)
	}
}

func TestMountdAway(t *testing.T) {
	c := NewClient(filepath.Join(t.TempDir(), "none.sock"), testToken)
	c.patience = 30 * time.Millisecond
	if _, err := c.NewSlot(t.Context()); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("NewSlot: got %v, want ErrUnavailable", err)
	}
	if _, err := c.Changes(t.Context(), "", 0); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("Changes: got %v, want ErrUnavailable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.NewSlot(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("NewSlot with an ended context: got %v, want context.Canceled", err)
	}
}

// A restart of mountd is not seen by those who ask meanwhile.
func TestClientWaitsForRestart(t *testing.T) {
	in := newInstallation(t)
	moved := in.socket + ".moved"
	if err := os.Rename(in.socket, moved); err != nil {
		t.Fatal(err)
	}
	c := NewClient(in.socket, testToken)
	defer c.Close()
	asked := make(chan error, 1)
	go func() {
		_, err := c.NewSlot(t.Context())
		asked <- err
	}()
	select {
	case err := <-asked:
		t.Fatalf("NewSlot did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := os.Rename(moved, in.socket); err != nil {
		t.Fatal(err)
	}
	if err := <-asked; err != nil {
		t.Errorf("NewSlot: %v", err)
	}
}
