package fusefs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth"
)

// beforeIs checks what a path held at a checkpoint; want nil = it was not there.
func (r *rig) beforeIs(t *testing.T, tree berth.Tree, path string, at uint64, want *string) {
	t.Helper()
	body, size, err := r.Before(t.Context(), tree, path, at)
	if want == nil {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s at %d: got %v, want fs.ErrNotExist", path, at, err)
		}
		return
	}
	if err != nil {
		t.Errorf("%s at %d: %v", path, at, err)
		return
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	if err != nil || string(got) != *want || size != int64(len(got)) {
		t.Errorf("%s at %d: got %q, %d bytes said, %v, want %q", path, at, got, size, err, *want)
	}
}

func TestCheckpoints(t *testing.T) {
	r := gatewayRig(t)
	tree := berth.MemberTree("acme", "ann")
	must(t, r.AttachTree(t.Context(), tree))
	root := r.path("acme/members/ann") + "/"
	write := func(name, content string) {
		t.Helper()
		must(t, os.WriteFile(root+name, []byte(content), 0o644))
	}
	for _, name := range []string{"written", "appended", "removed", "replaced", "moved", "truncated", "kept"} {
		write(name, "old "+name)
	}
	r.settle()
	first, err := r.Checkpoint(t.Context(), []berth.Tree{tree})
	must(t, err)
	write("written", "new")
	write("created", "new")
	f, err := os.OpenFile(root+"appended", os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	f.WriteString(", and more")
	must(t, f.Close())
	must(t, os.Remove(root+"removed"))
	write("temp", "new")
	must(t, os.Rename(root+"temp", root+"replaced"))
	must(t, os.Rename(root+"moved", root+"moved-here"))
	must(t, os.Truncate(root+"truncated", 3))
	check := func() {
		t.Helper()
		for _, name := range []string{"written", "appended", "removed", "replaced", "truncated", "moved", "kept"} {
			r.beforeIs(t, tree, name, first, str("old "+name))
		}
		for _, name := range []string{"created", "temp", "moved-here", "never"} {
			r.beforeIs(t, tree, name, first, nil)
		}
	}
	check()
	r.settle()
	second, err := r.Checkpoint(t.Context(), []berth.Tree{tree})
	must(t, err)
	if second <= first {
		t.Errorf("checkpoints: got %d after %d", second, first)
	}
	write("written", "newest")
	write("removed", "again")
	r.beforeIs(t, tree, "written", second, str("new"))
	r.beforeIs(t, tree, "removed", second, nil)
	r.beforeIs(t, tree, "created", second, str("new"))
	check()
	r.close()
	r.open()
	check()
	if _, err := r.Checkpoint(t.Context(), []berth.Tree{berth.SharedTree("other")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a tree that is not there: got %v", err)
	}
}

func TestOldCheckpointsGo(t *testing.T) {
	var ahead atomic.Int64
	r := newRig(t, func(o *Options) {
		o.WholeBucket = false
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	tree := berth.SharedTree("acme")
	must(t, r.AttachTree(t.Context(), tree))
	f := r.path("acme/shared/f")
	must(t, os.WriteFile(f, []byte("old"), 0o644))
	r.settle()
	n, err := r.Checkpoint(t.Context(), []berth.Tree{tree})
	must(t, err)
	must(t, os.WriteFile(f, []byte("new"), 0o644))
	ahead.Store(int64(defaultHistoryAge + time.Hour))
	must(t, r.keepSaved(t.Context(), keepAfter))
	must(t, r.pruneAside())
	must(t, r.pruneCheckpoints())
	if _, _, err := r.Before(t.Context(), tree, "f", n); !errors.Is(err, ErrNotKept) {
		t.Errorf("got %v, want ErrNotKept", err)
	}
	if left, err := r.cache.Befores(); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// settle waits until no file is open for writing any more.
func (r *rig) settle() {
	r.t.Helper()
	eventually(r.t, "all files settle", func() bool { return r.Status().Open == 0 })
}

func TestChanges(t *testing.T) {
	r := gatewayRig(t)
	tree := berth.MemberTree("acme", "ann")
	must(t, r.AttachTree(t.Context(), tree))
	sub := r.Changes(FromNow)
	root := r.path("acme/members/ann") + "/"
	must(t, os.Mkdir(root+"d", 0o755))
	must(t, os.WriteFile(root+"d/f", []byte("12345"), 0o644))
	r.settle()
	must(t, os.Rename(root+"d/f", root+"g"))
	must(t, os.Chmod(root+"g", 0o600))
	must(t, os.Remove(root+"g"))
	want := []string{"create dir d", "create file d/f", "write file d/f", "rename file g from d/f", "attr file g", "remove file g"}
	var got []string
	seq := sub.seq
	for len(got) < len(want) {
		changes, err := sub.Next(t.Context())
		must(t, err)
		for _, c := range changes {
			if seq++; c.Seq != seq || c.Tree != tree.String() {
				t.Errorf("got %+v, want number %d of %s", c, seq, tree)
			}
			line := string(c.Op) + " " + string(c.Kind) + " " + c.Path
			if c.From != "" {
				line += " from " + c.From
			}
			got = append(got, line)
			if c.Op == berth.OpWrite && c.Size != 5 {
				t.Errorf("size: got %d, want 5", c.Size)
			}
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := r.Changes(seq + 100).Next(t.Context()); !errors.Is(err, ErrReset) {
		t.Errorf("of the future: got %v, want ErrReset", err)
	}
}

// A file that settles late was changed when it was written: by that time a change
// finds its tool call.
func TestChangeHasTheTimeOfWriting(t *testing.T) {
	r := gatewayRig(t)
	tree := berth.MemberTree("acme", "ann")
	must(t, r.AttachTree(t.Context(), tree))
	sub := r.Changes(FromNow)
	file, err := os.Create(r.path("acme/members/ann/f"))
	must(t, err)
	_, err = file.WriteString("x")
	must(t, err)
	written := time.Now()
	time.Sleep(100 * time.Millisecond)
	must(t, file.Close())
	for {
		changes, err := sub.Next(t.Context())
		must(t, err)
		for _, c := range changes {
			if c.Op != berth.OpWrite {
				continue
			}
			if late := c.Time.Sub(written); late > 10*time.Millisecond {
				t.Errorf("the change is dated %v after the write", late)
			}
			return
		}
	}
}

func TestFeedResets(t *testing.T) {
	d := newFeed(4)
	for range 10 {
		d.publish(berth.Change{})
	}
	if got, _, err := d.since(6); err != nil || len(got) != 4 || got[0].Seq != 7 {
		t.Errorf("got %v, %v, want 7 to 10", got, err)
	}
	if _, _, err := d.since(5); !errors.Is(err, ErrReset) {
		t.Errorf("behind: got %v, want ErrReset", err)
	}
	if got, wait, err := d.since(10); err != nil || len(got) > 0 || wait == nil {
		t.Errorf("up to date: got %v, %v", got, err)
	}
}

// last of them.
func TestCheckpointsAtOnce(t *testing.T) {
	r, tree, root := treeRig(t)
	must(t, os.WriteFile(root+"f", []byte("old"), 0o644))
	r.settle()
	for round := range 40 {
		var all sync.WaitGroup
		numbers := make([]uint64, 64)
		for i := range numbers {
			all.Go(func() { numbers[i], _ = r.Checkpoint(t.Context(), []berth.Tree{tree}) })
		}
		all.Wait()
		last := uint64(0)
		for _, n := range numbers {
			last = max(last, n)
		}
		inode, err := r.db.Inode(r.inoOf(tree.String()))
		must(t, err)
		if got := r.saves.at(inode.Ino); got != last {
			t.Fatalf("round %d: changes are noted for checkpoint %d, the last is %d", round, got, last)
		}
	}
}
