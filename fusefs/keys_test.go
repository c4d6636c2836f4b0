package fusefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
	"berth/fusefs/object"
	"berth/fusefs/object/embedded/embeddedtest"
	bucketsync "berth/fusefs/sync"
)

// onStores runs a test on a mount of each kind of store that tests have.
func onStores(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Run("memory", func(t *testing.T) { test(t, newRig(t)) })
	t.Run("embedded", func(t *testing.T) {
		store := embeddedtest.Open(t)
		test(t, newRig(t, func(o *Options) { o.Store = store }))
	})
}

// A name can have every byte but the slash and NUL, as long as it is UTF-8, and 255
// of them; each comes back from the bucket.
func TestEveryByteInNames(t *testing.T) {
	onStores(t, func(t *testing.T, r *rig) {
		var names []string
		for c := 1; c < 0x80; c++ {
			if c != '/' {
				names = append(names, fmt.Sprintf("%cin%cside%c", c, c, c))
			}
		}
		names = append(names, strings.Repeat("n", 255), strings.Repeat("é", 127), strings.Repeat("\U0001f600", 63), "café", "cafe\u0301",
			"\u2028", "\ufffe", "\ufffd", "CASE", "case", ".sgwtmp", "...", ".berth", "%2F", "a+b", "a b")
		slices.Sort(names)
		must(t, os.Mkdir(r.path("d"), 0o755))
		for i, name := range names {
			path := r.path("d/" + name)
			switch i % 8 { // most are files
			case 1:
				must(t, os.Mkdir(path, 0o755))
			case 2:
				must(t, os.Symlink(name, path))
			default:
				must(t, os.WriteFile(path, []byte(name), 0o644))
			}
		}
		for c := 0x80; c < 0x100; c++ { // alone they are no UTF-8
			if err := os.WriteFile(r.path("d/a"+string([]byte{byte(c)})), nil, 0o644); !errors.Is(err, syscall.EILSEQ) {
				t.Errorf("byte %#x: got %v, want EILSEQ", c, err)
			}
		}
		want := treeOf(t, r.path("d"))
		r.flush()
		r.forget()
		if got := treeOf(t, r.path("d")); !slices.Equal(got, want) {
			t.Errorf("from the bucket: got %d names, want %d", len(got), len(want))
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Fatalf("got %q, want %q", got[i], want[i])
				}
			}
		}
	})
}

// Extended attributes come back from the bucket up to the very limit, with all else
// that an object tells at its longest.
func TestXattrsAtTheLimit(t *testing.T) {
	onStores(t, func(t *testing.T, r *rig) {
		must(t, os.WriteFile(r.path("f"), []byte("x"), 0o644))
		must(t, os.Link(r.path("f"), r.path("g")))
		must(t, os.Chown(r.path("f"), 1<<31, 1<<31))
		must(t, unix.Setxattr(r.path("f"), "user.a", []byte{1}, 0))
		room := bucketsync.MaxXattrs - bucketsync.XattrSize(map[string][]byte{"user.a": {1}, "user.big": {}}) - 1 // a longer length
		big := make([]byte, room+1)
		for i := range big {
			big[i] = byte(i)
		}
		if err := unix.Setxattr(r.path("f"), "user.big", big, 0); err != unix.ENOSPC {
			t.Errorf("one byte too many: got %v, want ENOSPC", err)
		}
		must(t, unix.Setxattr(r.path("f"), "user.big", big[:room], 0))
		r.flush()
		r.forget()
		got := make([]byte, room+1)
		n, err := unix.Getxattr(r.path("g"), "user.big", got)
		if err != nil || !slices.Equal(got[:max(n, 0)], big[:room]) {
			t.Errorf("from the bucket: got %d bytes, %v, want the %d that were set", n, err, room)
		}
	})
}

// How deep a directory may go is known of it, also when what is in it changes, and
// a rename looks at nothing below it.
func TestRenameKnowsTheLongestKey(t *testing.T) {
	r := newRig(t)
	part := strings.Repeat("p", 250)
	must(t, os.MkdirAll(r.path("a/b/c/"+part), 0o755))
	must(t, os.WriteFile(r.path("a/b/c/"+part+"/"+part), nil, 0o644))
	must(t, os.MkdirAll(r.path(part+"/"+part), 0o755))
	under := r.path(part + "/" + part) // 502 bytes with its slash; what is below a has 506
	room := object.MaxKey - 502 - len("/b/c/"+part+"/"+part) - 1
	if err := os.Rename(r.path("a"), under+"/"+strings.Repeat("x", room+1)); !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("a byte too long: got %v, want ENAMETOOLONG", err)
	}
	long := under + "/" + strings.Repeat("x", room)
	must(t, os.Rename(r.path("a"), long))
	must(t, os.Rename(long, r.path("a")))
	must(t, os.Rename(r.path("a/b"), r.path("b"))) // where it came from and goes to know of it
	must(t, os.Mkdir(r.path("new"), 0o755))
	must(t, os.Rename(r.path("b"), r.path("new/b")))
	if err := os.Rename(r.path("new"), under+"/"+strings.Repeat("x", room+3)); !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("with a directory that was moved in: got %v, want ENAMETOOLONG", err)
	}
	n, err := r.db.Inode(index.Ino(statOf(t, r.path("new")).Ino))
	if want := uint32(len("/b/c/" + part + "/" + part)); err != nil || n.Below != want {
		t.Errorf("got %d bytes below, %v, want %d", n.Below, err, want)
	}
	r.flush()
	r.forget() // now it has to be looked up
	if err := os.Rename(r.path("new"), under+"/"+strings.Repeat("x", room+3)); !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("from the bucket: got %v, want ENAMETOOLONG", err)
	}
	must(t, os.Rename(r.path("new"), under+"/"+strings.Repeat("x", room)))
	r.flush()
	key := strings.TrimPrefix(under, r.dir+"/") + "/" + strings.Repeat("x", room) + "/b/c/" + part + "/" + part
	if len(key) != object.MaxKey-1 { // one is for the slash of a directory
		t.Errorf("the key has %d bytes", len(key))
	}
	if _, err := r.object(key); err != nil {
		t.Errorf("the longest key: %v", err)
	}
}

// What has no path is hidden, counted, and left alone.
func TestForeignKeys(t *testing.T) {
	r := newRig(t)
	r.close()
	hidden := []string{"d//x", "d/./x", "d/../x", "../up", "/lead", "d/" + strings.Repeat("n", 256), "both"}
	for _, key := range append(hidden, "d/shown", "both/under", "e/") {
		must(t, r.put(key, "content of "+key))
	}
	before := r.keys()
	r.open()
	var got []string
	must(t, filepath.WalkDir(r.dir, func(path string, _ fs.DirEntry, err error) error {
		got = append(got, strings.TrimPrefix(path, r.dir))
		return err
	}))
	if want := []string{"", "/both", "/both/under", "/d", "/d/shown", "/e"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := r.Status().Hidden; n != len(hidden) {
		t.Errorf("got %d hidden keys, want %d", n, len(hidden))
	}
	must(t, os.WriteFile(r.path("d/new"), nil, 0o644))
	r.flush()
	want := append(before, "d/new")
	slices.Sort(want)
	if got := r.keys(); !slices.Equal(got, want) {
		t.Errorf("after a change beside them: got %q, want %q", got, want)
	}
}
