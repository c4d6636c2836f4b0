package fusefs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"berth"
)

// TestTreesNeverMix hammers 64 trees at once with the same names in each: a tag
// is read back as it was written, here, after a restart, and in the bucket.
func TestTreesNeverMix(t *testing.T) {
	const trees, rounds = 64, 6
	r := gatewayRig(t)
	root := func(i int) string { return r.path(berth.MemberTree("acme", berth.ID(fmt.Sprint("u", i))).String()) }
	attach := func() {
		for i := range trees {
			must(t, r.AttachTree(t.Context(), berth.MemberTree("acme", berth.ID(fmt.Sprint("u", i))), "shared"))
		}
	}
	attach()
	var hammers sync.WaitGroup
	for i := range trees {
		hammers.Go(func() {
			for n := range rounds {
				if err := hammerTree(root(i), fmt.Sprintf("tree %d round %d", i, n)); err != nil {
					t.Errorf("tree %d: %v", i, err)
					return
				}
			}
		})
	}
	hammers.Wait()
	r.close()
	r.open()
	attach()
	for i := range trees {
		want := fmt.Sprintf("tree %d round %d", i, rounds-1)
		for _, name := range []string{"d/moved", "d/linked", "replaced"} {
			if got, err := os.ReadFile(filepath.Join(root(i), name)); err != nil || string(got) != want {
				t.Errorf("%s of tree %d: got %q, %v, want %q", name, i, got, err, want)
			}
			key := fmt.Sprintf("acme/members/u%d/%s", i, name)
			if got, err := r.object(key); err != nil || got != want {
				t.Errorf("object %s: got %q, %v, want %q", key, got, err, want)
			}
		}
	}
}

// hammerTree makes the same files in a tree anew, with a tag in each.
func hammerTree(root, tag string) error {
	at := func(name string) string { return filepath.Join(root, name) }
	write := func(name string) error { return os.WriteFile(at(name), []byte(tag), 0o644) }
	steps := []func() error{
		func() error { return os.RemoveAll(at("d")) },
		func() error { return os.MkdirAll(at("new/sub"), 0o755) },
		func() error { return write("new/file") },
		func() error { return os.Rename(at("new"), at("d")) },
		func() error { return os.Rename(at("d/file"), at("d/moved")) },
		func() error { return os.Link(at("d/moved"), at("d/linked")) },
		func() error { return write(".replaced") },
		func() error { return os.Rename(at(".replaced"), at("replaced")) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	for _, name := range []string{"d/moved", "d/linked", "replaced"} {
		if got, err := os.ReadFile(at(name)); err != nil || string(got) != tag {
			return fmt.Errorf("%s holds %q, %v; want %q", name, got, err, tag)
		}
	}
	entries, err := os.ReadDir(at("d"))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); err != nil || got != "linked moved sub" {
		return fmt.Errorf("d holds %s, %w", got, err)
	}
	return nil
}
