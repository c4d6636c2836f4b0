package sync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"berth/fusefs/index"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

// tree returns all paths below a directory of the index.
func (w *world) paths(p string, dir index.Ino) []string {
	w.t.Helper()
	entries, err := w.db.Entries(dir, "", 1<<20)
	w.check(err)
	var out []string
	for _, e := range entries {
		if e.Type == index.TypeDir {
			out = append(out, p+e.Name+"/")
			out = append(out, w.paths(p+e.Name+"/", e.Ino)...)
			continue
		}
		out = append(out, p+e.Name)
	}
	return out
}

func TestListForeign(t *testing.T) {
	onBoth(t, func(t *testing.T, store object.Store) {
		put(t, store, testTree+"plain", "hello", nil)
		put(t, store, testTree+"d/e/deep", "deep", nil)
		put(t, store, testTree+"marked/", "", map[string]string{"file-permissions": "0040700"})
		put(t, store, testTree+"link", "plain", map[string]string{"file-permissions": "0120777"})
		put(t, store, testTree+"s3fs", "x", map[string]string{"mode": "33216", "uid": "5", "gid": "6", "mtime": "1500000000.000000001"})
		w := newWorld(t, store, nil)
		w.list("")
		equal(t, "names", w.paths("", w.root), []string{"d/", "d/e/", "d/e/deep", "link", "marked/", "plain", "s3fs"})
		for _, p := range []string{"link", "s3fs", "marked"} {
			ino := w.at(p).Ino
			w.check(w.sync.Describe(context.Background(), ino))
			equal(t, "number after Describe", w.at(p).Ino, ino)
		}
		equal(t, "mode of marked", w.at("marked").Mode, uint32(index.TypeDir|0o700))
		equal(t, "target", w.at("link").Target, "plain")
		n := w.at("s3fs")
		equal(t, "s3fs attributes", []any{n.Mode, n.UID, n.GID, n.Mtime}, []any{uint32(index.TypeFile | 0o700), uint32(5), uint32(6), int64(1500000000000000001)})
		equal(t, "content", w.read("d/e/deep"), "deep")
		equal(t, "a symlink fetched", w.read("link"), "plain")
		w.verify()
		// An attribute change of a file that is not here writes all of it again.
		w.chmod("plain", 0o600)
		w.flush()
		w.verify()
	})
}

func TestListPages(t *testing.T) {
	store := &mem.Store{}
	const files, dirs = 2500, 1200
	for i := range files {
		put(t, store, fmt.Sprintf("%sf%06d", testTree, i), "", nil)
	}
	for i := range dirs {
		put(t, store, fmt.Sprintf("%sf%06d.d/x", testTree, i), "", nil)
	}
	w := newWorld(t, store, nil)
	w.check(w.sync.List(context.Background(), w.root))
	entries, err := w.db.Entries(w.root, "", 1<<20)
	w.check(err)
	equal(t, "names", len(entries), files+dirs)
	calls := store.Calls(mem.OpList)
	w.check(w.sync.List(context.Background(), w.root))
	equal(t, "requests of a second List", store.Calls(mem.OpList)-calls, 0)
	w.relist("")
	again, err := w.db.Entries(w.root, "", 1<<20)
	w.check(err)
	equal(t, "names listed again", again, entries)
	equal(t, "HEADs", store.Calls(mem.OpHead), 0)
}

func TestHiddenNames(t *testing.T) {
	store := &mem.Store{}
	for _, key := range []string{"a", "a/b", "x//y", "./dot", "d/../up", "..", ".", strings.Repeat("n", 300), "ok\x01\n"} {
		put(t, store, testTree+key, "x", nil)
	}
	w := newWorld(t, store, nil)
	w.list("")
	equal(t, "names", w.paths("", w.root), []string{"a/", "a/b", "d/", "ok\x01\n", "x/"})
	st, err := w.sync.Status()
	w.check(err)
	equal(t, "hidden names", st.Hidden, 7) // the file a, //y, the dots, .., up and the long one
	w.flush()
	if got := len(bucket(t, store, testTree)); got != 9 {
		t.Errorf("objects: got %d, want all 9 left alone", got)
	}
}

func TestWholeBucketHidesOwn(t *testing.T) {
	store := &mem.Store{}
	put(t, store, ".berth/records/x.json", "{}", nil)
	put(t, store, "acme/shared/f", "x", nil)
	w := newWorld(t, store, nil)
	w.kill()
	w.dir, w.tree = t.TempDir(), ""
	w.open()
	w.list("")
	equal(t, "names", w.paths("", w.root), []string{"acme/", "acme/shared/", "acme/shared/f"})
}

// What others change shows after a listing, files with local work are left to
// their uploads, and open ones keep what they have.
func TestRefresh(t *testing.T) {
	onBoth(t, func(t *testing.T, store object.Store) {
		w := newWorld(t, store, nil)
		for _, p := range []string{"changed", "deleted", "open", "linked"} {
			w.create(p, "old")
		}
		w.hardlink("linked", "linked2")
		w.mkdir("d")
		w.create("d/x", "x")
		w.mkdir("d/sub")
		w.flush()
		w.list("")
		w.relist("")
		open := w.at("open").Ino
		w.mu.Lock()
		w.inUse[open], w.entries, w.inodes, w.changes = true, nil, nil, nil
		w.mu.Unlock()
		for _, p := range []string{"changed", "open", "linked", "new", "newdir/f"} {
			put(t, store, testTree+p, "newer content", nil)
		}
		for _, p := range []string{"deleted", "d/x", "d/sub/", "d/"} {
			w.check(store.Delete(context.Background(), testTree+p, ""))
		}
		changed := w.at("changed").Ino
		w.relist("")
		w.list("")
		equal(t, "names", w.paths("", w.root), []string{"changed", "linked", "linked2", "new", "newdir/", "newdir/f", "open"})
		for _, p := range []string{"changed", "open", "linked", "new", "newdir/f"} {
			equal(t, "content of "+p, w.read(p), "newer content")
		}
		equal(t, "content of the other link", w.read("linked2"), "old")
		equal(t, "number of a changed file", w.at("changed").Ino, changed)
		if w.at("open").Ino == open {
			t.Error("an open file was replaced under its readers")
		}
		w.mu.Lock()
		delete(w.inUse, open)
		if len(w.entries) == 0 || len(w.inodes) == 0 || len(w.changes) < 5 {
			t.Errorf("hooks: %d entries, %d inodes, %d changes", len(w.entries), len(w.inodes), len(w.changes))
		}
		w.mu.Unlock()
		w.check(w.sync.sweepOrphans())
		if _, err := w.db.Inode(open); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file without a name that nobody has open any more: got %v", err)
		}
		w.flush()
		w.verify()
	})
}

// A listing that was made before an upload or delete ended does not undo it.
func TestListingIsLate(t *testing.T) {
	store := &mem.Store{}
	w := newWorld(t, store, nil)
	w.create("written", "old")
	w.create("removed", "old")
	w.flush()
	keys := w.sync.touched.begin()
	res, err := store.List(context.Background(), object.ListOptions{Prefix: testTree, Delimiter: "/"})
	w.check(err)
	w.write("written", "new")
	w.unlink("removed")
	w.create("made", "new")
	w.flush()
	l := &listing{dir: w.root, inode: w.at(""), prefix: testTree, from: testTree, prefixes: map[uint64]struct{}{}}
	w.check(w.sync.merge(context.Background(), l, res, keys))
	w.sync.touched.end(keys)
	equal(t, "names", w.paths("", w.root), []string{"made", "written"})
	equal(t, "content", w.read("written"), "new")
	w.verify()
}

func TestBackgroundRefresh(t *testing.T) {
	store := &mem.Store{}
	w := newWorld(t, store, func(o *Options) { o.Revalidate = time.Millisecond })
	w.check(w.sync.List(context.Background(), w.root))
	put(t, store, testTree+"late", "x", nil)
	w.waitFor("the refresh", func() bool {
		w.check(w.sync.List(context.Background(), w.root))
		_, err := w.lookup("late")
		return err == nil
	})
}

func TestFetch(t *testing.T) {
	onBoth(t, func(t *testing.T, store object.Store) {
		big := bytes.Repeat([]byte("0123456789abcdef"), (2*wholeFetch)/16)
		clear(big[1<<20 : 9<<20]) // becomes a hole
		put(t, store, testTree+"big", string(big), nil)
		put(t, store, testTree+"empty", "", nil)
		w := newWorld(t, store, nil)
		w.list("")
		if w.read("big") != string(big) || w.read("empty") != "" {
			t.Error("fetched content differs")
		}
		st, err := w.cache.Stat(w.at("big").Ino)
		w.check(err)
		if st.Used > st.Size-(7<<20) {
			t.Errorf("disk used: got %d of %d bytes, want holes", st.Used, st.Size)
		}
		equal(t, "time of the cache file", st.Mtime, w.at("big").Mtime)
	})
}

// The object changes or goes while its file is fetched.
func TestFetchOfChangedObject(t *testing.T) {
	store := &mem.Store{}
	put(t, store, testTree+"changed", "one", nil)
	put(t, store, testTree+"gone", "one", nil)
	w := newWorld(t, store, nil)
	w.list("")
	put(t, store, testTree+"changed", "another", nil)
	w.check(store.Delete(context.Background(), testTree+"gone", ""))
	equal(t, "content", w.read("changed"), "another")
	if err := w.sync.Fetch(context.Background(), w.at("gone").Ino); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("fetch of a file that is gone: got %v", err)
	}
	equal(t, "names", w.paths("", w.root), []string{"changed"})
}

// Many callers share one request.
func TestFetchOnce(t *testing.T) {
	store := &mem.Store{}
	put(t, store, testTree+"f", "content", nil)
	w := newWorld(t, store, nil)
	w.list("")
	store.Inject(mem.Fault{Op: mem.OpGet, Delay: 100 * time.Millisecond})
	ino := w.at("f").Ino
	errs := make(chan error)
	for range 20 {
		go func() { errs <- w.sync.Fetch(context.Background(), ino) }()
	}
	for range 20 {
		w.check(<-errs)
	}
	equal(t, "GETs", store.Calls(mem.OpGet), 1)
}
