package fusefs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object/mem"
)

func onBothWays(t *testing.T, f func(t *testing.T, change func(*Options))) {
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprintf("passthrough=%v", !off), func(t *testing.T) {
			f(t, func(o *Options) { o.NoPassthrough = off })
		})
	}
}

func str(s string) *string { return &s }

// A directory rename hides nothing: what was there before is found under the path
// that it had, whether it is changed before or after the rename.
func TestBeforeOfRenamedDirectories(t *testing.T) {
	onBothWays(t, func(t *testing.T, change func(*Options)) {
		r, tree, root := treeRig(t, change)
		must(t, os.MkdirAll(root+"d/sub", 0o755))
		names := []string{"first", "later", "appended", "removed", "replaced", "moved", "kept"}
		for _, name := range names {
			must(t, os.WriteFile(root+"d/sub/"+name, []byte("old "+name), 0o644))
		}
		r.settle()
		at := r.checkpoint(tree)
		must(t, os.WriteFile(root+"d/sub/first", []byte("new"), 0o644))
		must(t, os.Rename(root+"d", root+"e"))
		must(t, os.WriteFile(root+"e/sub/later", []byte("new"), 0o644))
		f, err := os.OpenFile(root+"e/sub/appended", os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		f.WriteString(", and more")
		must(t, f.Close())
		must(t, os.Remove(root+"e/sub/removed"))
		must(t, os.WriteFile(root+"e/temp", []byte("new"), 0o644))
		must(t, os.Rename(root+"e/temp", root+"e/sub/replaced"))
		must(t, os.Rename(root+"e/sub", root+"s"))
		must(t, os.Rename(root+"s/moved", root+"moved"))
		must(t, os.WriteFile(root+"moved", []byte("newer"), 0o644))
		must(t, os.Mkdir(root+"d", 0o755)) // another one
		check := func() {
			t.Helper()
			for _, name := range names {
				r.beforeIs(t, tree, "d/sub/"+name, at, str("old "+name))
				r.beforeIs(t, tree, "e/sub/"+name, at, nil)
				r.beforeIs(t, tree, "s/"+name, at, nil)
			}
			r.beforeIs(t, tree, "moved", at, nil)
		}
		check()
		r.settle()
		next := r.checkpoint(tree)
		must(t, os.WriteFile(root+"s/later", []byte("newest"), 0o644))
		r.settle()
		r.beforeIs(t, tree, "s/later", next, str("new"))
		r.beforeIs(t, tree, "moved", next, str("newer"))
		check()
		r.close()
		r.open()
		check()
	})
}

// A file that is open for writing at a checkpoint has its content pinned too, also
// over several checkpoints.
func TestBeforeOfOpenFiles(t *testing.T) {
	onBothWays(t, func(t *testing.T, change func(*Options)) {
		r, tree, root := treeRig(t, change)
		must(t, os.WriteFile(root+"f", []byte("old"), 0o644))
		must(t, os.WriteFile(root+"big", make([]byte, openCopy+1), 0o644))
		r.settle()
		// Of what was written a moment ago nobody can tell whether it changed.
		past := time.Now().Add(-time.Hour)
		must(t, os.Chtimes(root+"f", past, past))
		f, err := os.OpenFile(root+"f", os.O_RDWR, 0)
		must(t, err)
		big, err := os.OpenFile(root+"big", os.O_RDWR, 0)
		must(t, err)
		fresh, err := os.Create(root + "fresh")
		must(t, err)
		first := r.checkpoint(tree)
		for _, file := range []*os.File{f, big, fresh} {
			_, err := file.WriteAt([]byte("new"), 0)
			must(t, err)
		}
		second := r.checkpoint(tree)
		for _, file := range []*os.File{f, big, fresh} {
			must(t, file.Close())
		}
		r.settle()
		r.beforeIs(t, tree, "f", first, str("old"))
		r.beforeIs(t, tree, "fresh", first, str(""))
		expect(t, "changes since the first", kinds(r, tree, first), []string{"modified big", "modified f", "modified fresh"})
		r.beforeIs(t, tree, "f", second, str("new"))
		r.beforeIs(t, tree, "fresh", second, str("new"))
		must(t, os.WriteFile(root+"f", []byte("newer"), 0o644))
		r.settle()
		third := r.checkpoint(tree)
		r.beforeIs(t, tree, "f", third, str("newer"))
	})
}

func kinds(r *rig, tree berth.Tree, at uint64) (out []string) {
	changes, _, err := r.ChangesSince(r.t.Context(), tree, at)
	must(r.t, err)
	for _, c := range changes {
		out = append(out, string(c.Kind)+" "+c.Path)
	}
	return out
}

// A reader of an earlier content gets it whole, though the file is changed in
// place meanwhile.
func TestBeforeWhileChanged(t *testing.T) {
	r, tree, root := treeRig(t)
	old := strings.Repeat("old content\n", 20_000)
	must(t, os.WriteFile(root+"f", []byte(old), 0o644))
	r.settle()
	at := r.checkpoint(tree)
	body, size, err := r.Before(t.Context(), tree, "f", at)
	must(t, err)
	defer body.Close()
	begin := make([]byte, 1000)
	_, err = io.ReadFull(body, begin)
	must(t, err)
	f, err := os.OpenFile(root+"f", os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(strings.Repeat("x", len(old)))
	must(t, errors.Join(err, f.Close()))
	rest, err := io.ReadAll(body)
	if err != nil || string(begin)+string(rest) != old || size != int64(len(old)) {
		t.Errorf("got %d bytes, the same: %v, %v", len(begin)+len(rest), string(begin)+string(rest) == old, err)
	}
}

// What a checkpoint pins outlives this host's copy of it: contents that were never
// uploaded are put into the history, the others are there by their upload.
func TestPinnedContentsReachTheBucket(t *testing.T) {
	var ahead atomic.Int64
	store := new(mem.Store)
	r, tree, root := treeRig(t, func(o *Options) {
		o.Store = store
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	must(t, os.WriteFile(root+"stored", []byte("stored"), 0o644))
	r.flush()
	heal := store.Inject(mem.Fault{Op: mem.OpPut, Prefix: tree.Prefix(), Err: errors.New("status 400")})
	must(t, os.WriteFile(root+"never", []byte("never stored"), 0o644))
	must(t, os.WriteFile(root+"removed", []byte("removed"), 0o644))
	r.settle()
	at := r.checkpoint(tree)
	must(t, os.WriteFile(root+"never", []byte("new"), 0o644))
	must(t, os.WriteFile(root+"stored", []byte("new"), 0o644))
	must(t, os.Remove(root+"removed"))
	heal()
	r.flush()
	eventually(t, "the kernel forgets the removed file", func() bool {
		files, err := r.cache.Befores()
		return err == nil && len(files) == 3
	})
	must(t, r.keepSaved(t.Context(), keepAfter)) // too young
	ahead.Store(int64(asideAge - time.Hour))
	must(t, r.keepSaved(t.Context(), keepAfter))
	puts := store.Calls(mem.OpPut)
	must(t, r.keepSaved(t.Context(), keepAfter))
	if again := store.Calls(mem.OpPut); again != puts {
		t.Errorf("%d contents were put again", again-puts)
	}
	check := func() {
		t.Helper()
		for name, want := range map[string]string{"stored": "stored", "never": "never stored", "removed": "removed"} {
			r.beforeIs(t, tree, name, at, &want)
			versions, err := r.Versions(t.Context(), tree, name)
			if err != nil || len(versions) != 1 {
				t.Errorf("versions of %s: %v, %v, want one", name, versions, err)
			}
		}
	}
	must(t, r.pruneAside())
	if files, err := r.cache.Befores(); err != nil || len(files) != 3 {
		t.Errorf("on this host before its time: %v, %v, want 3", files, err)
	}
	check()
	ahead.Store(int64(asideAge + time.Hour))
	must(t, r.pruneAside())
	if files, err := r.cache.Befores(); err != nil || len(files) != 0 {
		t.Errorf("left on this host: %v, %v", files, err)
	}
	check()
}

// What others put into the bucket and was never read here is pinned too.
func TestBeforeOfForeignFiles(t *testing.T) {
	r, tree, root := treeRig(t)
	for _, name := range []string{"removed", "written", "replaced"} {
		must(t, r.put(tree.Prefix()+name, "foreign "+name))
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 3 {
		t.Fatalf("got %v, %v", entries, err)
	}
	at := r.checkpoint(tree)
	must(t, os.Remove(root+"removed"))
	must(t, os.WriteFile(root+"written", []byte("ours"), 0o644))
	must(t, os.WriteFile(root+"temp", []byte("ours"), 0o644))
	must(t, os.Rename(root+"temp", root+"replaced"))
	check := func() {
		t.Helper()
		for _, name := range []string{"removed", "written", "replaced"} {
			r.beforeIs(t, tree, name, at, str("foreign "+name))
		}
	}
	check()
	r.flush()
	check()
	expect(t, "changes", kinds(r, tree, at), []string{"deleted removed", "modified replaced", "modified written"})
}

// Bytes that lost their record, as by a kill, go.
func TestStrayAsidesGo(t *testing.T) {
	var ahead atomic.Int64
	r, _, _ := treeRig(t, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	for _, name := range []string{asideName(index.FirstIno, 1, 1), "no name of ours"} {
		must(t, os.WriteFile(filepath.Join(r.state, "cache", "before", name), nil, 0o600))
	}
	must(t, r.pruneAside())
	if files, _ := r.cache.Befores(); len(files) != 2 {
		t.Errorf("in the time in which a record may come: %v are left, want 2", files)
	}
	ahead.Store(int64(asideGrace + time.Minute))
	must(t, r.pruneAside())
	if files, _ := r.cache.Befores(); len(files) != 0 {
		t.Errorf("left: %v", files)
	}
}

func TestRestore(t *testing.T) {
	var ahead atomic.Int64
	r, tree, root := treeRig(t, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	ctx := t.Context()
	must(t, os.MkdirAll(root+"d/sub", 0o755))
	must(t, os.WriteFile(root+"f", []byte("first"), 0o751))
	must(t, os.WriteFile(root+"d/sub/gone", []byte("gone"), 0o644))
	must(t, os.Symlink("f", root+"d/link"))
	r.flush()
	ahead.Add(int64(time.Hour))
	must(t, os.WriteFile(root+"f", []byte("second"), 0o600))
	must(t, os.RemoveAll(root+"d"))
	r.flush()
	restore := func(path string) {
		t.Helper()
		versions, err := r.Versions(ctx, tree, path)
		if err != nil || len(versions) == 0 {
			t.Fatalf("versions of %s: %v, %v", path, versions, err)
		}
		must(t, r.Restore(ctx, tree, path, versions[0].ID))
	}
	files, more, err := r.Deleted(ctx, tree, "")
	if err != nil || more || len(files) != 2 || files[0].Path != "d/link" || files[1].Path != "d/sub/gone" {
		t.Errorf("deleted: %+v, %v, %v", files, more, err)
	}
	sub := r.Changes(FromNow)
	for _, path := range []string{"f", "d/sub/gone", "d/link"} {
		restore(path)
	}
	if got, err := os.ReadFile(root + "f"); err != nil || string(got) != "first" {
		t.Errorf("got %q, %v", got, err)
	}
	if info, err := os.Stat(root + "f"); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("mode: %v, %v", info, err)
	}
	if got, err := os.ReadFile(root + "d/sub/gone"); err != nil || string(got) != "gone" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := os.Readlink(root + "d/link"); err != nil || got != "f" {
		t.Errorf("link to %q, %v", got, err)
	}
	r.flush()
	if got, err := r.object(tree.Prefix() + "f"); err != nil || got != "first" {
		t.Errorf("object: %q, %v", got, err)
	}
	seen := make(map[string]bool)
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for !seen["f"] || !seen["d/sub/gone"] {
		changes, err := sub.Next(wait)
		must(t, err)
		for _, c := range changes {
			seen[c.Path] = true
		}
	}
	ahead.Add(int64(time.Hour))
	restore("f") // what was there before is the version now
	if files, _, err := r.Deleted(ctx, tree, "d"); err != nil || len(files) != 0 {
		t.Errorf("still deleted: %v, %v", files, err)
	}
	for _, bad := range []string{"../f", "/f", "d/../f"} {
		if err := r.Restore(ctx, tree, bad, "0000000000000001-gw.1o"); !errors.Is(err, os.ErrInvalid) {
			t.Errorf("path %q: got %v, want it to be invalid", bad, err)
		}
	}
	if left, _ := filepath.Glob(root + ".berth-*"); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

// Content that the store refuses to keep does not hold up what was set aside later.
func TestRefusedContentHoldsUpNoOther(t *testing.T) {
	store := new(mem.Store)
	r, tree, root := treeRig(t, func(o *Options) { o.Store = store })
	defer store.Inject(mem.Fault{Op: mem.OpPut, Prefix: tree.Prefix(), Err: errors.New("status 400")})()
	for _, name := range []string{"first", "second"} {
		must(t, os.WriteFile(root+name, []byte(name), 0o644))
	}
	r.settle()
	r.checkpoint(tree)
	must(t, os.WriteFile(root+"first", []byte("new"), 0o644))
	time.Sleep(20 * time.Millisecond) // set aside one after the other
	must(t, os.WriteFile(root+"second", []byte("new"), 0o644))
	r.settle()
	defer store.Inject(mem.Fault{Op: mem.OpPut, Prefix: ".berth/history/" + tree.Prefix() + "first/", Err: errors.New("status 400")})()
	if err := r.keepSaved(t.Context(), 0); err == nil {
		t.Error("that one was refused is not told")
	}
	if v, err := r.Versions(t.Context(), tree, "second"); err != nil || len(v) != 1 {
		t.Errorf("versions of the other: %v, %v", v, err)
	}
}
