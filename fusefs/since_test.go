package fusefs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth"
	"berth/fusefs/index"
)

// treeRig mounts one tree and returns it with the path of its root, which ends in
// a slash.
func treeRig(t *testing.T, change ...func(*Options)) (r *rig, tree berth.Tree, root string) {
	t.Helper()
	r = newRig(t, append(change, func(o *Options) { o.WholeBucket = false })...)
	tree = berth.MemberTree("acme", "ann")
	must(t, r.AttachTree(t.Context(), tree))
	return r, tree, r.path(tree.String()) + "/"
}

func (r *rig) checkpoint(tree berth.Tree) uint64 {
	r.t.Helper()
	n, err := r.Checkpoint(r.t.Context(), []berth.Tree{tree})
	must(r.t, err)
	return n
}

// changesSince returns the changes as lines; of those with both contents whether
// these differ.
func (r *rig) changesSince(tree berth.Tree, checkpoint uint64) []string {
	r.t.Helper()
	changes, more, err := r.ChangesSince(r.t.Context(), tree, checkpoint)
	must(r.t, err)
	if more {
		r.t.Error("there should be no more changes")
	}
	out := []string{}
	for _, c := range changes {
		line := fmt.Sprintf("%s %s %s", c.Kind, c.File, c.Path)
		if c.From != "" {
			line += " from " + c.From
		}
		if c.Old != nil {
			line += fmt.Sprintf(", was %d bytes", c.Old.Size)
		}
		if c.New != nil {
			line += fmt.Sprintf(", is %d bytes", c.New.Size)
		}
		if c.Old != nil && c.New != nil && c.Old.Version == c.New.Version {
			line += ", same"
		}
		out = append(out, line)
	}
	return out
}

func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n%q, want\n%q", what, got, want)
	}
}

func TestChangesSince(t *testing.T) {
	r, tree, root := treeRig(t)
	write := func(name, content string) {
		t.Helper()
		must(t, os.WriteFile(root+name, []byte(content), 0o644))
	}
	for _, d := range []string{"d", "d/sub", "gone", "x"} {
		must(t, os.Mkdir(root+d, 0o755))
	}
	for _, f := range []string{"written", "deleted", "replaced", "moved", "over", "kept", "back", "p", "q", "linked", "d/deep", "d/sub/in", "gone/f", "x/f"} {
		write(f, "1")
	}
	r.settle()
	first := r.checkpoint(tree)
	expect(t, "nothing", r.changesSince(tree, first), []string{})

	write("written", "22")
	must(t, os.Chmod(root+"kept", 0o600))
	must(t, os.Remove(root+"deleted"))
	write("temp", "333")
	must(t, os.Rename(root+"temp", root+"replaced"))
	write("short", "lived")
	must(t, os.Remove(root+"short"))
	must(t, os.Rename(root+"moved", root+"x/moved"))
	must(t, os.Rename(root+"back", root+"away"))
	must(t, os.Rename(root+"away", root+"back"))
	must(t, os.Rename(root+"x/f", root+"over")) // onto what was there
	must(t, unix.Renameat2(unix.AT_FDCWD, root+"p", unix.AT_FDCWD, root+"q", unix.RENAME_EXCHANGE))
	must(t, os.Link(root+"linked", root+"link"))
	must(t, os.Rename(root+"d", root+"e"))
	write("e/sub/in", "4444")
	write("e/new", "new")
	must(t, os.RemoveAll(root+"gone"))
	must(t, os.Symlink("kept", root+"symlink"))
	r.settle()
	want := []string{
		"created file e/new, is 3 bytes",
		"created file link, is 1 bytes",
		"created symlink symlink",
		"deleted dir gone",
		"deleted file deleted, was 1 bytes",
		"deleted file gone/f, was 1 bytes",
		"deleted file x/f, was 1 bytes",
		"modified file e/sub/in, was 1 bytes, is 4 bytes",
		"modified file over, was 1 bytes, is 1 bytes",
		"modified file p, was 1 bytes, is 1 bytes",
		"modified file q, was 1 bytes, is 1 bytes",
		"modified file replaced, was 1 bytes, is 3 bytes",
		"modified file written, was 1 bytes, is 2 bytes",
		"renamed dir e from d",
		"renamed file x/moved from moved, was 1 bytes, is 1 bytes, same",
	}
	sorted := func() []string {
		out := r.changesSince(tree, first)
		slices.Sort(out)
		return out
	}
	expect(t, "since the first", sorted(), want)

	second := r.checkpoint(tree)
	expect(t, "since the second", r.changesSince(tree, second), []string{})
	expect(t, "since the first, after the second", sorted(), want)
	write("written", "55555")
	must(t, os.Rename(root+"e", root+"f"))
	must(t, os.Remove(root+"f/new"))
	r.settle()
	expect(t, "since the second", r.changesSince(tree, second), []string{
		"deleted file e/new, was 3 bytes",
		"renamed dir f from e",
		"modified file written, was 2 bytes, is 5 bytes",
	})
	r.close()
	r.open()
	expect(t, "after a restart", r.changesSince(tree, second)[:1], []string{"deleted file e/new, was 3 bytes"})
	for _, checkpoint := range []uint64{0, second + 1} {
		if _, _, err := r.ChangesSince(t.Context(), tree, checkpoint); !errors.Is(err, ErrNotKept) {
			t.Errorf("since %d: got %v, want ErrNotKept", checkpoint, err)
		}
	}
}

// What changed is found by what was noted, not by a walk over the tree.
func TestChangesSinceInLargeTree(t *testing.T) {
	const files, changed = 50_000, 100
	r, tree, root := treeRig(t)
	top, err := r.treeRoot(tree)
	must(t, err)
	for d := range files / 1000 {
		must(t, os.Mkdir(fmt.Sprintf("%sd%d", root, d), 0o755))
	}
	must(t, r.db.Update(func(b *index.Batch) error {
		for d := range files / 1000 {
			e, err := r.db.Lookup(top, fmt.Sprintf("d%d", d))
			if err != nil {
				return err
			}
			for i := range 1000 {
				ino, err := r.db.NewIno()
				if err != nil {
					return err
				}
				b.PutInode(index.Inode{Ino: ino, Tree: top, Mode: index.TypeFile | 0o644, Links: 1, Gen: 1, Stamp: index.Stamp{Time: 1, Gateway: "gw"}})
				b.Link(e.Ino, fmt.Sprintf("f%d", i), ino, index.TypeFile)
				if i >= changed {
					continue
				}
				file, err := r.cache.Create(ino)
				if err != nil {
					return err
				}
				file.Close()
			}
		}
		return nil
	}))
	at := r.checkpoint(tree)
	for i := range changed {
		must(t, os.WriteFile(fmt.Sprintf("%sd%d/f%d", root, i%(files/1000), i), []byte("x"), 0o644))
	}
	r.settle()
	start := time.Now()
	var before, after syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	changes, more, err := r.ChangesSince(t.Context(), tree, at)
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	took := time.Since(start)
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	if err != nil || more || len(changes) != changed {
		t.Errorf("got %d changes, %v, %v, want %d", len(changes), more, err, changed)
	}
	t.Logf("%d of %d files changed: listed in %s, %s of processor", changed, files, took, cpu)
	if took > 200*time.Millisecond && cpu > 200*time.Millisecond {
		t.Errorf("listing %d changes of %d files took %s", changed, files, took)
	}
}

// Both bounds of what is kept are held: the records of a tree, the bytes here.
func TestRecordsAreBounded(t *testing.T) {
	r, tree, root := treeRig(t)
	top, err := r.treeRoot(tree)
	must(t, err)
	var numbers []uint64
	for range 4 {
		r.settle()
		numbers = append(numbers, r.checkpoint(tree))
		for range 3 {
			f, err := os.CreateTemp(root, "")
			must(t, err)
			must(t, f.Close())
		}
	}
	for most, want := range map[int]uint64{12: 0, 11: numbers[0] + 1, 6: numbers[1] + 1, 1: numbers[3] + 1} {
		if below, err := r.db.CheckpointBehind(top, most); err != nil || below != want {
			t.Errorf("at most %d records: got %d, %v, want %d", most, below, err, want)
		}
	}
	must(t, r.dropCheckpoints(top, numbers[2]))
	if _, _, err := r.ChangesSince(t.Context(), tree, numbers[1]); !errors.Is(err, ErrNotKept) {
		t.Errorf("of a dropped checkpoint: got %v, want ErrNotKept", err)
	}
	if got := r.changesSince(tree, numbers[2]); len(got) != 6 {
		t.Errorf("of one that stays: got %d changes, want 6", len(got))
	}
}
