package fusefs

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth"
)

// gatewayRig mounts with a synthetic root and the machines' owner.
func gatewayRig(t *testing.T) *rig {
	return newRig(t, func(o *Options) {
		o.WholeBucket = false
		o.Owner = &Owner{UID: 1000, GID: 1000}
	})
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestTrees(t *testing.T) {
	r := gatewayRig(t)
	if got := names(t, r.dir); len(got) > 0 {
		t.Errorf("an empty mount has %q", got)
	}
	if _, err := os.Stat(r.path("acme")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before it was attached: got %v", err)
	}
	ann, shared := berth.MemberTree("acme", "ann"), berth.SharedTree("acme")
	for range 2 {
		must(t, r.AttachTree(t.Context(), ann, "shared"))
		must(t, r.AttachTree(t.Context(), shared))
	}
	if got, want := names(t, r.path("acme")), []string{"members", "shared"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := names(t, r.path("acme/members/ann")), []string{"shared"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	must(t, os.WriteFile(r.path("acme/members/ann/f"), []byte("mine"), 0o644))
	must(t, os.WriteFile(r.path("acme/shared/g"), []byte("ours"), 0o644))
	var st unix.Stat_t
	must(t, unix.Stat(r.path("acme/members/ann/f"), &st))
	if st.Uid != 1000 || st.Gid != 1000 {
		t.Errorf("owner: got %d:%d, want 1000:1000", st.Uid, st.Gid)
	}
	must(t, os.Chown(r.path("acme/members/ann/f"), 1000, 1000))
	if err := os.Chown(r.path("acme/members/ann/f"), 0, 0); !errors.Is(err, syscall.EPERM) {
		t.Errorf("chown to another: got %v, want EPERM", err)
	}
	r.flush()
	if got, want := r.keys(), []string{"acme/members/ann/f", "acme/shared/g"}; !slices.Equal(got, want) {
		t.Errorf("keys: got %q, want %q", got, want)
	}
	r.close()
	r.open()
	must(t, r.AttachTree(t.Context(), ann, "shared"))
	if got, err := os.ReadFile(r.path("acme/members/ann/f")); err != nil || string(got) != "mine" {
		t.Errorf("after a restart: got %q, %v", got, err)
	}
}

// Synthetic nodes refuse what would take them away or write beneath.
func TestSyntheticNodes(t *testing.T) {
	r := gatewayRig(t)
	ann := berth.MemberTree("acme", "ann")
	home := berth.MachineTree("acme", "i0")
	must(t, r.AttachTree(t.Context(), ann))
	root := r.path("acme/members/ann")
	must(t, os.MkdirAll(root+"/shared/deep", 0o755)) // of the tree itself, to be hidden
	must(t, os.WriteFile(root+"/plain", nil, 0o644))
	must(t, os.Mkdir(root+"/dir", 0o755))
	must(t, r.AttachTree(t.Context(), ann, "shared"))
	must(t, r.AttachTree(t.Context(), home, "project", "workspace", "workspace/profy/c1"))
	if got := names(t, root+"/shared"); len(got) > 0 {
		t.Errorf("the synthetic directory has %q", got)
	}
	synthetic := []string{r.dir, r.path("acme"), r.path("acme/members"), root + "/shared", r.path("acme/machines/i0/workspace"),
		r.path("acme/machines/i0/workspace/profy/c1")}
	for _, dir := range synthetic {
		for what, do := range map[string]func() error{
			"create":  func() error { return os.WriteFile(dir+"/x", nil, 0o644) },
			"mkdir":   func() error { return os.Mkdir(dir+"/x", 0o755) },
			"symlink": func() error { return os.Symlink("y", dir+"/x") },
			"chmod":   func() error { return os.Chmod(dir, 0o700) },
			"link":    func() error { return os.Link(root+"/plain", dir+"/x") },
			"move in": func() error { return os.Rename(root+"/plain", dir+"/x") },
		} {
			if err := do(); !errors.Is(err, syscall.EROFS) {
				t.Errorf("%s in %s: got %v, want EROFS", what, dir, err)
			}
		}
	}
	for _, path := range []string{r.path("acme"), root, root + "/shared", r.path("acme/machines/i0/workspace/profy/c1"),
		r.path("acme/machines/i0/workspace/profy"), r.path("acme/machines/i0/project")} {
		var before, after unix.Stat_t
		must(t, unix.Stat(path, &before))
		for what, do := range map[string]func() error{
			"rmdir": func() error { return unix.Rmdir(path) },
			"move":  func() error { return unix.Rename(path, root+"/elsewhere") },
			"over":  func() error { return unix.Rename(root+"/dir", path) },
			"exchange": func() error {
				return unix.Renameat2(unix.AT_FDCWD, root+"/dir", unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
			},
		} {
			err := do()
			// The kernel itself refuses to move a directory below or over its own parents.
			own := errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTEMPTY)
			if !errors.Is(err, syscall.EBUSY) && !(own && strings.HasPrefix(root, path)) {
				t.Errorf("%s %s: got %v, want EBUSY", what, path, err)
			}
		}
		if err := os.Mkdir(path, 0o755); !errors.Is(err, syscall.EEXIST) {
			t.Errorf("mkdir %s: got %v, want EEXIST", path, err)
		}
		must(t, unix.Stat(path, &after))
		if before.Ino != after.Ino {
			t.Errorf("%s: its number went from %d to %d", path, before.Ino, after.Ino)
		}
	}
	must(t, os.Mkdir(r.path("acme/machines/i0/own"), 0o755))
}

func TestTreesAreApart(t *testing.T) {
	r := gatewayRig(t)
	must(t, r.AttachTree(t.Context(), berth.MemberTree("acme", "ann")))
	must(t, r.AttachTree(t.Context(), berth.SharedTree("acme")))
	a, b := r.path("acme/members/ann/f"), r.path("acme/shared/f")
	must(t, os.WriteFile(a, nil, 0o644))
	for what, err := range map[string]error{"link": os.Link(a, b), "rename": os.Rename(a, b)} {
		if !errors.Is(err, syscall.EXDEV) {
			t.Errorf("%s: got %v, want EXDEV", what, err)
		}
	}
}

// Mounts on synthetic directories stay while everything around changes.
func TestMountsOnSyntheticNodesStay(t *testing.T) {
	r := gatewayRig(t)
	ann := berth.MemberTree("acme", "ann")
	must(t, r.AttachTree(t.Context(), ann, "shared"))
	root := r.path("acme/members/ann")
	other := t.TempDir()
	must(t, os.WriteFile(other+"/inside", nil, 0o644))
	must(t, unix.Mount(other, root+"/shared", "", unix.MS_BIND, ""))
	defer unix.Unmount(root+"/shared", unix.MNT_DETACH)
	must(t, os.WriteFile(root+"/f", nil, 0o644))
	r.EntryChanged(1, "acme")
	n, err := r.lookup(caller{}, 1, "acme")
	must(t, err)
	r.EntryChanged(n.Ino, "members")
	rootIno, _, err := r.db.Tree(ann.Prefix())
	must(t, err)
	r.EntryChanged(rootIno, "shared")
	r.EntryChanged(rootIno, "f")
	r.InodeChanged(rootIno)
	<-r.notify.entryTold(rootIno, "f") // behind the others
	must(t, r.AttachTree(t.Context(), ann, "shared", "other"))
	if got, want := names(t, root+"/shared"), []string{"inside"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRemoveTree(t *testing.T) {
	r := gatewayRig(t)
	ann, bob := berth.MemberTree("acme", "ann"), berth.MemberTree("acme", "bob")
	for _, tree := range []berth.Tree{ann, bob} {
		must(t, r.AttachTree(t.Context(), tree))
		makeThing(t, filepath.Join(r.dir, tree.String()), "a", "full")
	}
	r.flush()
	must(t, r.put("acme/members/ann/foreign/file", "unseen"))
	held, err := os.Open(r.path("acme/members/ann/a/one"))
	must(t, err)
	defer held.Close()
	must(t, r.RemoveTree(t.Context(), ann))
	if got := names(t, r.path("acme/members/ann")); len(got) > 0 {
		t.Errorf("it still has %q", got)
	}
	for _, k := range r.keys() {
		if len(k) > 17 && k[:17] == "acme/members/ann/" {
			t.Errorf("the bucket still has %s", k)
		}
	}
	buf := make([]byte, 3)
	if _, err := held.ReadAt(buf, 0); err != nil || string(buf) != "one" {
		t.Errorf("an open file: got %q, %v", buf, err)
	}
	if got := treeOf(t, r.path("acme/members/bob")); len(got) != 5 {
		t.Errorf("another tree has %q", got)
	}
}

func TestStateIsLocked(t *testing.T) {
	r := newRig(t)
	o := r.opts
	o.Mountpoint = t.TempDir()
	if f, err := Open(context.Background(), o); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one on the state: got %v, want fs.ErrExist", err)
		if err == nil {
			f.Close(context.Background())
		}
	}
	o.StateDir = t.TempDir()
	o.Mountpoint = r.dir
	if f, err := Open(context.Background(), o); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one on the mount: got %v, want fs.ErrExist", err)
		if err == nil {
			f.Close(context.Background())
		}
	}
}

// TestRootIsPrivate shows the trees from the top to their owner and to nobody
// else, whatever the modes in them.
func TestRootIsPrivate(t *testing.T) {
	r := gatewayRig(t)
	info, err := os.Stat(r.dir)
	must(t, err)
	st := info.Sys().(*syscall.Stat_t)
	if got, want := info.Mode().Perm(), os.FileMode(0o700); got != want || st.Uid != 1000 {
		t.Errorf("the root has mode %v and owner %d, want %v and 1000", got, st.Uid, want)
	}
}

// TestCloseWithCopiedMount closes while another mount namespace holds a copy of
// the mount, as any process that makes a namespace has.
func TestCloseWithCopiedMount(t *testing.T) {
	r := gatewayRig(t)
	other := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; read line")
	in, err := other.StdinPipe()
	must(t, err)
	out, err := other.StdoutPipe()
	must(t, err)
	must(t, other.Start())
	t.Cleanup(func() { in.Close(); other.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the other namespace said %q, %v", line, err)
	}
	closed := make(chan error, 1)
	go func() { closed <- r.Close(t.Context()) }()
	select {
	case err := <-closed:
		must(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("Close waits for the copy of the mount in another namespace")
	}
}
