package mounts

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"berth"
)

func TestClientHistory(t *testing.T) {
	in := newInstallation(t)
	c, ctx := in.client, t.Context()
	tree := berth.SharedTree("acme")
	if err := c.AttachTree(ctx, tree); err != nil {
		t.Fatal(err)
	}
	write(t, in.host, "acme/shared/f", "one")
	mark, err := c.Checkpoint(ctx, []berth.Tree{tree})
	if err != nil {
		t.Fatal(err)
	}
	write(t, in.host, "acme/shared/f", "two")
	versions, err := c.Versions(ctx, tree, "f")
	if err != nil || len(versions) != 1 || versions[0].Size != 3 || versions[0].End != berth.EndOverwritten {
		t.Fatalf("Versions: got %+v, %v", versions, err)
	}
	body, size, err := c.OpenVersion(ctx, tree, "f", versions[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	body.Close()
	if string(data) != "one" || size != 3 || err != nil {
		t.Errorf("OpenVersion: got %q (%d), %v; want one", data, size, err)
	}
	if err := c.Restore(ctx, tree, "f", versions[0].ID); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(in.host.FSDir(), "acme/shared/f")); err != nil || string(got) != "one" {
		t.Errorf("restored: got %q, %v", got, err)
	}
	if _, _, err := c.OpenVersion(ctx, tree, "f", "7"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a version that is not there: got %v", err)
	}
	files, more, err := c.Deleted(ctx, tree, "")
	if err != nil || !more || len(files) != 1 || files[0].Path != "gone" {
		t.Errorf("Deleted: got %+v, %v, %v", files, more, err)
	}
	changes, more, err := c.ChangesSince(ctx, tree, mark)
	if err != nil || !more || len(changes) != 1 || changes[0].Kind != berth.PathModified {
		t.Errorf("ChangesSince: got %+v, %v, %v", changes, more, err)
	}
	if _, _, err := c.ChangesSince(ctx, tree, 0); !errors.Is(err, ErrNotKept) {
		t.Errorf("ChangesSince of none: got %v, want ErrNotKept", err)
	}
}
