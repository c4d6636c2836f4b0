package mounts

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

// How TestViewsNeverMix hammers.
const (
	hammerViews      = 64
	hammerWorkspaces = 8 // with eight members each
	hammerFiles      = 4
)

var hammerRounds = flag.Int("hammer", 2, "how often TestViewsNeverMix goes over the files of each machine")

// hammer makes, rewrites, renames, lists and reads files in the disk and in the
// shared directory of a member, under names that all use, and fails when it
// meets a word that is not its own.
func hammer(home, workspace, user string, rounds int) error {
	for round := range rounds {
		for _, tag := range []string{user, workspace} {
			dir := filepath.Join(home, "user/workspace")
			if tag == workspace {
				dir = filepath.Join(dir, "shared")
			}
			for i := range hammerFiles {
				if err := hammerFile(dir, tag, user, fmt.Sprint("f", i), round); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func hammerFile(dir, tag, user, name string, round int) error {
	path, mine := filepath.Join(dir, name), filepath.Join(dir, "of-"+user)
	if err := os.WriteFile(mine, []byte(tag), 0o644); err != nil {
		return err
	}
	// In the shared directory others do the same, with the same word.
	if err := errors.Join(os.Rename(mine, path), os.WriteFile(mine, []byte(tag+fmt.Sprint(round)), 0o644)); err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil || string(data) != tag {
		return fmt.Errorf("%s holds %q, %v; want %q", path, data, err, tag)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	seen := false
	for _, e := range entries {
		owner, marked := strings.CutPrefix(e.Name(), "of-")
		seen = seen || owner == user
		if marked && !strings.HasPrefix(owner+"-", tag+"-") {
			return fmt.Errorf("%s lists %s", dir, e.Name())
		}
	}
	if !seen {
		return fmt.Errorf("%s does not list the file of %s", dir, user)
	}
	return nil
}

// TestViewsNeverMix hammers the views of 64 machines at once: each meets its own
// member's and workspace's words only, and so does the bucket.
func TestViewsNeverMix(t *testing.T) {
	store := new(mem.Store)
	h, f := newFUSE(t, t.TempDir(), store)
	var machines []*helper
	for i := range hammerViews {
		workspace, user := fmt.Sprint("w", i%hammerWorkspaces), fmt.Sprintf("w%d-u%d", i%hammerWorkspaces, i/hammerWorkspaces)
		id := mustSlot(t, h)
		mustMount(t, h, id, berth.View{
			Workspace: berth.ID(workspace), Machine: berth.ID(fmt.Sprint("i", i)), Chat: "c", User: berth.ID(user), Experts: []berth.ID{"profy"},
		})
		c := newContainer(t, h, id)
		c.send("hammer %s %s %d", workspace, user, *hammerRounds)
		machines = append(machines, c)
	}
	for _, c := range machines {
		want(t, "a machine", c.answer(), "clean")
	}
	if err := f.Flush(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	page, err := store.List(t.Context(), object.ListOptions{})
	for ; err == nil && len(page.Objects) > 0; page, err = store.List(t.Context(), object.ListOptions{After: page.Objects[len(page.Objects)-1].Key}) {
		for _, o := range page.Objects {
			checkTag(t, store, o.Key)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkTag compares an object with the tree that its key is in.
func checkTag(t *testing.T, store object.Store, key string) {
	t.Helper()
	tag := ""
	if parts := strings.Split(key, "/"); len(parts) == 4 && parts[1] == "members" {
		tag = parts[2]
	} else if len(parts) == 3 && parts[1] == "shared" {
		tag = parts[0]
	} else {
		return
	}
	body, _, err := store.Get(t.Context(), key, object.GetOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	defer body.Close()
	if data, err := io.ReadAll(body); err != nil || strings.TrimRight(strings.TrimPrefix(string(data), tag), "0123456789") != "" || len(data) == 0 {
		t.Errorf("object %s holds %q, %v; want %q", key, data, err, tag)
	}
}
