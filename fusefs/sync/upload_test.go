package sync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
	"berth/fusefs/object/embedded/embeddedtest"
	"berth/fusefs/object/mem"
)

// onBoth runs a test with the store in memory and with a real one.
func onBoth(t *testing.T, f func(t *testing.T, store object.Store)) {
	t.Run("mem", func(t *testing.T) { f(t, &mem.Store{}) })
	t.Run("embedded", func(t *testing.T) { f(t, embeddedtest.Open(t)) })
}

// watched returns a world whose store fails the test when a file loses its last
// object.
func watched(t *testing.T, store object.Store) *world {
	wit := &witness{Store: store, t: t}
	w := newWorld(t, wit, nil)
	wit.inode = func(ino index.Ino) (index.Inode, error) { return w.db.Inode(ino) }
	return w
}

func TestUploadKinds(t *testing.T) {
	onBoth(t, func(t *testing.T, store object.Store) {
		w := watched(t, store)
		w.create("a", "hello")
		w.create("empty", "")
		w.mkdir("d")
		w.mkdir("d/empty")
		w.create("d/deep name\nwith \x01 bytes %+#", "x")
		w.symlink("link", "../somewhere/else")
		w.hardlink("a", "d/a2")
		w.chmod("a", 0o751)
		w.chmod("d", 0o700)
		w.flush()
		w.verify()
		info, err := store.Head(context.Background(), testTree+"link")
		w.check(err)
		equal(t, "permissions of a symlink", info.Metadata["file-permissions"], "0120777")
		st, err := w.sync.Status()
		w.check(err)
		equal(t, "left in the queue", st.Files, 0)
	})
}

func TestRewriteRenameRemove(t *testing.T) {
	onBoth(t, func(t *testing.T, store object.Store) {
		w := watched(t, store)
		w.create("a", "one")
		w.create("b", "two")
		w.mkdir("d")
		w.create("d/x", "x")
		w.flush()
		w.write("a", "one, again")
		w.rename("b", "c")
		w.rename("d", "e")
		w.unlink("e/x")
		w.flush()
		w.verify()
		w.swap("a", "c")
		w.flush()
		w.verify()
		w.unlink("a")
		w.unlink("c")
		w.unlink("e")
		w.flush()
		w.verify()
		equal(t, "objects left", len(bucket(t, store, testTree)), 0)
	})
}

// A branch a and a branch a/b cannot both exist; git goes from one to the other.
func TestFileBecomesDirectory(t *testing.T) {
	onBoth(t, func(t *testing.T, store object.Store) {
		w := watched(t, store)
		w.create("a", "file")
		w.flush()
		w.unlink("a")
		w.mkdir("a")
		w.create("a/b", "below")
		w.flush()
		w.verify()
		w.unlink("a/b")
		w.unlink("a")
		w.create("a", "file again")
		w.flush()
		w.verify()
		// The file itself moves below a directory of its name, and back.
		w.rename("a", "t")
		w.mkdir("a")
		w.rename("t", "a/b")
		w.flush()
		w.verify()
		w.rename("a/b", "t")
		w.unlink("a")
		w.rename("t", "a")
		w.flush()
		w.verify()
		equal(t, "content", w.read("a"), "file again")
	})
}

func TestDirectoryRename(t *testing.T) {
	onBoth(t, func(t *testing.T, store object.Store) {
		for i := range 20 {
			put(t, store, fmt.Sprintf("%sold/sub%d/f", testTree, i%3), fmt.Sprint("foreign", i), nil)
			put(t, store, fmt.Sprintf("%sold/f%d", testTree, i), fmt.Sprint("foreign", i), nil)
		}
		w := newWorld(t, store, nil)
		w.check(w.sync.List(context.Background(), w.root))
		w.rename("old", "new") // never listed itself
		w.mkdir("old")
		w.create("old/f1", "mine")
		w.list("")
		equal(t, "content", w.read("new/f19"), "foreign19")
		equal(t, "content", w.read("new/sub2/f"), "foreign17")
		w.flush()
		w.verify()
		equal(t, "content", content(t, store, testTree+"old/f1"), "mine")
		equal(t, "content", content(t, store, testTree+"new/f1"), "foreign1")
	})
}

func TestBusyFileWaits(t *testing.T) {
	store := &mem.Store{}
	w := newWorld(t, store, nil)
	ino := w.create("a", "one")
	w.flush()
	w.setBusy(ino, true)
	w.update(func(b *index.Batch) error {
		n, err := w.db.Inode(ino)
		n.Mode, n.AttrStamp = n.Mode|0o111, w.sync.Clock().Now()
		b.PutInode(n)
		b.Enqueue(ino, time.Now().UnixNano())
		return err
	})
	w.sync.Kick(ino)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := w.sync.Flush(ctx, "", nil); err == nil || !strings.Contains(err.Error(), "1 files") {
		t.Errorf("flush of a busy file: got %v, want that 1 file is left", err)
	}
	w.settle(ino, 3)
	w.flush()
	w.verify()
}

func TestSnapshotOfBusyFile(t *testing.T) {
	store := &mem.Store{}
	w := newWorld(t, store, nil)
	ino := w.create("a", "one")
	w.flush()
	w.write("a", "snapshotted")
	w.mu.Lock()
	w.busy[ino], w.snapshots[ino] = true, w.cache.Path(ino)
	w.mu.Unlock()
	w.flush()
	equal(t, "content", content(t, store, testTree+"a"), "snapshotted")
}

// While the store is away everything waits; then it goes up alone.
func TestOutage(t *testing.T) {
	store := &mem.Store{}
	w := newWorld(t, store, nil)
	w.create("a", "one")
	w.flush()
	heal := store.Inject(mem.Fault{Err: berth.ErrUnavailable})
	w.create("b", "two")
	w.rename("a", "c")
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	err := w.sync.Flush(ctx, "", nil)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("flush while the store is away: got %v", err)
	}
	st, err := w.sync.Status()
	w.check(err)
	if st.Files == 0 || st.LastError == nil || st.Oldest.IsZero() || st.Bytes == 0 {
		t.Errorf("status while the store is away: got %+v", st)
	}
	heal()
	w.flush()
	w.verify()
}

// The answer to a PUT is lost: the object is recognised, not taken for a foreign
// one, also after a restart.
func TestLostAnswer(t *testing.T) {
	for _, restart := range []bool{false, true} {
		store := &mem.Store{}
		w := newWorld(t, store, nil)
		store.Inject(mem.Fault{Op: mem.OpPut, Lost: true, Times: 1})
		w.create("a", "one")
		if restart {
			w.waitFor("an announced upload", func() bool {
				r, _, err := w.db.Remote(testTree + "a")
				return err == nil && r.Intent.Gen != 0 && store.Calls(mem.OpPut) > 0
			})
			w.kill()
			w.open()
		}
		w.flush()
		w.verify()
		equal(t, "PUTs", store.Calls(mem.OpPut), 1)
		equal(t, "history", len(bucket(t, store, ownPrefix)), 0)
	}
}

func (w *world) waitFor(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("%s: not within 10 s", what)
		}
	}
}

// The file is unlinked while its upload is on the way.
func TestUnlinkDuringUpload(t *testing.T) {
	store := &mem.Store{}
	w := newWorld(t, store, nil)
	store.Inject(mem.Fault{Op: mem.OpPut, Delay: 200 * time.Millisecond, Times: 1})
	w.create("a", "one")
	w.waitFor("the upload", func() bool { return store.Calls(mem.OpPut) > 0 })
	w.unlink("a")
	w.flush()
	w.verify()
	w.create("a", "two")
	w.flush()
	w.verify()
}

func TestConflicts(t *testing.T) {
	hour := time.Hour
	for name, tc := range map[string]struct {
		clock   time.Duration // of the store against ours
		want    string
		history string
	}{
		"ours is later":  {-hour, "mine", "theirs"},
		"ours is sooner": {hour, "theirs", "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			store := &mem.Store{Now: func() time.Time { return time.Now().Add(tc.clock) }}
			w := newWorld(t, store, nil)
			w.create("a", "first")
			w.flush()
			put(t, store, testTree+"a", "theirs", nil)
			w.write("a", "mine")
			w.create("b", "mine") // a create against a create
			put(t, store, testTree+"b", "theirs", nil)
			w.flush()
			for _, name := range []string{"a", "b"} {
				equal(t, "content", w.read(name), tc.want)
				equal(t, "object", content(t, store, testTree+name), tc.want)
			}
			w.verify()
			old := bucket(t, store, historyPrefix)
			equal(t, "versions in the history", len(old), 2)
			for key := range old {
				equal(t, "history of "+key, content(t, store, historyPrefix+key), tc.history)
			}
		})
	}
}

// What others wrote after we deleted it comes back.
func TestDeleteAgainstForeignWrite(t *testing.T) {
	onBoth(t, func(t *testing.T, store object.Store) {
		w := newWorld(t, store, nil)
		w.mkdir("d")
		w.create("d/a", "first")
		w.flush()
		put(t, store, testTree+"d/a", "theirs", nil)
		w.unlink("d/a")
		w.unlink("d")
		w.flush()
		equal(t, "content", w.read("d/a"), "theirs")
	})
}

func TestEmptiedDirectoryStays(t *testing.T) {
	onBoth(t, func(t *testing.T, store object.Store) {
		put(t, store, testTree+"d/a", "foreign", nil)
		w := newWorld(t, store, nil)
		w.list("")
		w.unlink("d/a")
		w.flush()
		w.verify()
		if _, err := store.Head(context.Background(), testTree+"d/"); err != nil {
			t.Errorf("marker of an emptied directory: %v", err)
		}
	})
}

// Names that no store takes are left alone and do not hold up Flush.
func TestNameThatCannotBeStored(t *testing.T) {
	w := newWorld(t, &mem.Store{}, nil)
	w.create("bad\xff", "x")
	w.create("good", "y")
	w.flush()
	if _, err := w.store.Head(context.Background(), testTree+"good"); err != nil {
		t.Error(err)
	}
	if err := CheckName("bad\xff"); err == nil {
		t.Error("a name that is not UTF-8 passes CheckName")
	}
}

// A rename makes a key too long: the object stays under its old key until the
// file has a name that can be stored.
func TestRenameToTooLongKey(t *testing.T) {
	w := watched(t, &mem.Store{})
	w.mkdir("d")
	w.create("d/f", "content")
	w.flush()
	deep := ""
	for range 4 {
		deep = path.Join(deep, strings.Repeat("n", 250))
		w.mkdir(deep)
	}
	deep += "/" + strings.Repeat("d", 20)
	w.rename("d", deep)
	w.flush()
	equal(t, "content under the old key", content(t, w.store, testTree+"d/f"), "content")
	st, err := w.sync.Status()
	w.check(err)
	if !errors.Is(st.LastError, syscall.ENAMETOOLONG) {
		t.Errorf("last error: got %v, want ENAMETOOLONG", st.LastError)
	}
	w.rename(deep, "e")
	w.flush()
	w.unlinkAll(path.Dir(deep))
	w.flush()
	w.verify()
}

// unlinkAll removes a chain of empty directories.
func (w *world) unlinkAll(p string) {
	w.t.Helper()
	for ; p != "."; p = path.Dir(p) {
		w.unlink(p)
	}
}

func TestGoneTree(t *testing.T) {
	w := newWorld(t, &mem.Store{}, nil)
	w.create("a", "x")
	w.update(func(b *index.Batch) error { b.DeleteTree(testTree); return nil })
	w.flush()
	if _, err := w.sync.dirKey(w.root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("key in a tree that is gone: got %v", err)
	}
	w.update(func(b *index.Batch) error { b.PutTree(testTree, w.root); return nil })
}

// TestUploadOfRemovedFile removes a file while its upload is under way: the
// upload ends at once, however much is still to be sent.
func TestUploadOfRemovedFile(t *testing.T) {
	store := &mem.Store{}
	w := newWorld(t, store, nil)
	heal := store.Inject(mem.Fault{Op: mem.OpPut, Hang: true})
	defer heal()
	w.create("large", "so much")
	w.waitFor("the upload", func() bool { return store.Calls(mem.OpPut) > 0 })
	w.unlink("large")
	w.flush()
	st, err := w.sync.Status()
	w.check(err)
	equal(t, "uploads under way", st.Running, 0)
}
