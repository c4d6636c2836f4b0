package sync

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

// An agingWorld is a world whose clock can be put forward.
type agingWorld struct {
	*world
	ahead   atomic.Int64
	numbers uint64
}

func newAgingWorld(t *testing.T, store object.Store) *agingWorld {
	w := &agingWorld{}
	w.world = newWorld(t, store, func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }
	})
	return w
}

// pass puts the clock forward. Who waits for a time by the clock has to look again.
func (w *agingWorld) pass(d time.Duration) {
	w.ahead.Add(int64(d))
	wake(w.sync.sched.wake)
}

// checkpoint is what fusefs does for a tree.
func (w *agingWorld) checkpoint() {
	w.numbers++
	w.update(func(b *index.Batch) error {
		b.PutCheckpoint(w.root, w.numbers, w.sync.Clock().Now().Time)
		return nil
	})
}

// versions returns what the history has of a path, the latest first, each as its
// end and content.
func (w *world) versions(p string) []string {
	w.t.Helper()
	versions, err := w.sync.Versions(w.t.Context(), w.tree+p)
	w.check(err)
	out := []string{}
	for i, v := range versions {
		if i > 0 && v.Time.After(versions[i-1].Time) {
			w.t.Errorf("versions of %s are not in order: %v", p, versions)
		}
		c, err := w.sync.OpenVersion(w.t.Context(), w.tree+p, v.ID)
		w.check(err)
		b, err := io.ReadAll(c)
		w.check(errors.Join(err, c.Close()))
		equal(w.t, "size of a version of "+p, v.Size, int64(len(b)))
		out = append(out, string(v.End)+" "+string(b))
	}
	return out
}

// The history has what was overwritten and deleted, unless it was short-lived, is
// still there under another name, or is of a kind that is not kept.
func TestHistoryOfDisplaced(t *testing.T) {
	onBoth(t, func(t *testing.T, store object.Store) {
		w := newAgingWorld(t, store)
		for _, p := range []string{"d", "d/sub", "x", "node_modules"} {
			w.mkdir(p)
		}
		for _, p := range []string{"over", "gone", "moved", "attr", "d/deep", "d/sub/deeper", "x/f", "node_modules/m", "replaced"} {
			w.create(p, "old "+p)
		}
		w.symlink("link", "to")
		w.flush()
		w.pass(10 * time.Minute)
		w.write("over", "new")
		w.unlink("gone")
		w.unlink("link")
		w.rename("moved", "moved-here")
		w.chmod("attr", 0o600)
		for _, p := range []string{"d/deep", "d/sub/deeper", "d/sub", "d"} {
			w.unlink(p)
		}
		w.rename("x", "y")
		w.unlink("node_modules/m")
		w.create("temp", "new")
		w.flush()
		w.rename("temp", "replaced")
		w.create("short", "lived")
		w.flush()
		w.unlink("short")
		w.flush()
		w.verify()
		for p, want := range map[string][]string{
			"over": {"overwritten old over"}, "gone": {"deleted old gone"}, "link": {"deleted to"}, "moved": {}, "moved-here": {},
			"attr": {}, "d/deep": {"deleted old d/deep"}, "d/sub/deeper": {"deleted old d/sub/deeper"}, "x/f": {}, "y/f": {},
			"node_modules/m": {}, "temp": {}, "short": {}, "replaced": {"overwritten old replaced"},
		} {
			equal(t, "versions of "+p, w.versions(p), want)
		}
		deleted := func(dir string) (out []string) {
			files, more, err := w.sync.Deleted(t.Context(), testTree+dir)
			w.check(err)
			equal(t, "more deleted files", more, false)
			for _, f := range files {
				out = append(out, f.Path)
			}
			return out
		}
		equal(t, "deleted files", deleted(""), []string{"d/deep", "d/sub/deeper", "gone", "link"})
		equal(t, "deleted files of a directory that is gone", deleted("d/"), []string{"deep", "sub/deeper"})
		w.create("gone", "again")
		w.flush()
		equal(t, "deleted files after one came back", deleted(""), []string{"d/deep", "d/sub/deeper", "link"})
		c, err := w.sync.OpenVersion(t.Context(), testTree+"link", mustOne(w, "link").ID)
		w.check(err)
		equal(t, "type of the link's version", c.Mode&index.TypeMask, uint32(index.TypeSymlink))
		w.check(c.Close())
		for id, want := range map[string]error{"../../" + testTree + "over": fs.ErrInvalid, "": fs.ErrInvalid, "0000000000000001-gw.1o": fs.ErrNotExist} {
			if _, err := w.sync.OpenVersion(t.Context(), testTree+"over", id); !errors.Is(err, want) {
				t.Errorf("version %q: got %v, want %v", id, err, want)
			}
		}
	})
}

func mustOne(w *agingWorld, p string) berth.Version {
	w.t.Helper()
	v, err := w.sync.Versions(w.t.Context(), w.tree+p)
	w.check(err)
	if len(v) != 1 {
		w.t.Fatalf("%s has %d versions, want 1", p, len(v))
	}
	return v[0]
}

// Of a file that is written every minute the history has a version about every
// five minutes, and each that was current at a checkpoint.
func TestHistoryCollapses(t *testing.T) {
	store := &mem.Store{}
	w := newAgingWorld(t, store)
	w.create("f", "0")
	w.flush()
	const writes = 30
	pinned := map[int]bool{7: true, 8: true, 21: true}
	for i := 1; i <= writes; i++ {
		w.pass(time.Minute)
		w.write("f", fmt.Sprint(i))
		w.flush()
		if pinned[i] {
			w.checkpoint()
		}
	}
	versions, err := w.sync.Versions(t.Context(), testTree+"f")
	w.check(err)
	if most := writes/5 + len(pinned); len(versions) > most || len(versions) < writes/5 {
		t.Errorf("got %d versions, want %d to %d", len(versions), writes/5, most)
	}
	equal(t, "copies that the store made", store.Calls(mem.OpCopy), len(versions))
	have := strings.Join(w.versions("f"), " ")
	for i := range pinned {
		if !strings.Contains(have, fmt.Sprintf("overwritten %d", i)) {
			t.Errorf("version %d of a checkpoint is not among: %s", i, have)
		}
	}
	last := time.Now().Add(time.Duration(w.ahead.Load()))
	for _, v := range versions {
		if gap := last.Sub(v.Time); gap > 6*time.Minute {
			t.Errorf("nothing was kept for %s before %s", gap, last)
		}
		last = v.Time
	}
	// A file of a checkpoint is kept however short it lived.
	w.create("short", "lived")
	w.flush()
	w.checkpoint()
	w.unlink("short")
	w.flush()
	equal(t, "versions of what a checkpoint pins", w.versions("short"), []string{"deleted lived"})
}

// The process ends after a version was copied and before the object is replaced or
// deleted, and once more at the same place: nothing is lost, and there is one
// version.
func TestKillBetweenCopyAndReplace(t *testing.T) {
	for _, op := range []mem.Op{mem.OpPut, mem.OpDelete} {
		t.Run(string(op), func(t *testing.T) {
			store := &mem.Store{}
			w := newAgingWorld(t, store)
			w.create("f", "old")
			w.flush()
			w.pass(time.Hour)
			heal := store.Inject(mem.Fault{Op: op, Prefix: testTree, Hang: true})
			calls := store.Calls(op)
			if op == mem.OpPut {
				w.write("f", "new")
			} else {
				w.unlink("f")
			}
			for range 2 {
				w.waitFor("the request", func() bool { return store.Calls(op) > calls })
				equal(t, "the object meanwhile", content(t, store, testTree+"f"), "old")
				w.kill()
				calls = store.Calls(op)
				w.open()
			}
			heal()
			w.flush()
			w.verify()
			end := map[mem.Op]string{mem.OpPut: "overwritten old", mem.OpDelete: "deleted old"}[op]
			equal(t, "versions", w.versions("f"), []string{end})
		})
	}
}

// A store that is away for the copy holds the upload up; one that refuses copies
// for good does not.
func TestHistoryAgainstFaults(t *testing.T) {
	store := &mem.Store{}
	w := newAgingWorld(t, store)
	w.create("f", "old")
	w.create("g", "old")
	w.flush()
	w.pass(time.Hour)
	store.Inject(mem.Fault{Op: mem.OpCopy, Times: 3, Err: fmt.Errorf("status 503: %w", berth.ErrUnavailable)})
	w.write("f", "new")
	w.flush()
	equal(t, "versions", w.versions("f"), []string{"overwritten old"})
	heal := store.Inject(mem.Fault{Op: mem.OpCopy, Err: fmt.Errorf("status 403: %w", fs.ErrPermission)})
	w.write("g", "new")
	w.flush()
	heal()
	equal(t, "object", content(t, store, testTree+"g"), "new")
	equal(t, "versions", w.versions("g"), []string{})
}

// The clean-up deletes what is older than the history's age and the earliest
// versions of a path that has too many, in passes of a bounded size.
func TestCleanHistory(t *testing.T) {
	now := time.Now()
	store := &mem.Store{Now: func() time.Time { return now }}
	w := newAgingWorld(t, store)
	version := func(p string, i int) string {
		return historyKey(testTree+p, index.Stamp{Time: uint64(i + 1), Gateway: "gw"}, berth.EndOverwritten)
	}
	const young = 3
	for i := range mostVersions + young {
		put(t, store, version("many", i), "x", nil)
	}
	foreign := historyPrefix + testTree + "f/0000000000000001-gw.2o" // of another version of the format
	put(t, store, foreign, "x", nil)
	put(t, store, version("f", 0), "x", nil)
	clean := func() (passes int) {
		for after := ""; ; {
			passes++
			next, err := w.sync.cleanHistory(t.Context(), after)
			w.check(err)
			if after = next; after == "" {
				return passes
			}
		}
	}
	clean()
	equal(t, "versions of a path", len(bucket(t, store, historyDir(testTree+"many"))), mostVersions)
	if _, err := store.Head(t.Context(), version("many", young-1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the earliest: got %v, want fs.ErrNotExist", err)
	}
	now = now.Add(defaultAge - time.Hour)
	w.pass(defaultAge - time.Hour)
	put(t, store, version("f", 1), "x", nil)
	clean()
	equal(t, "versions before their age", len(bucket(t, store, historyDir(testTree+"f"))), 3)
	w.pass(2 * time.Hour)
	clean()
	left := bucket(t, store, historyPrefix)
	equal(t, "versions behind their age", len(left), 2)
	for _, key := range []string{foreign, version("f", 1)} {
		if _, ok := left[strings.TrimPrefix(key, historyPrefix)]; !ok {
			t.Errorf("%s is gone", key)
		}
	}
}

// One pass of the clean-up reads and deletes no more than its bounds.
func TestCleanHistoryIsBounded(t *testing.T) {
	store := &mem.Store{}
	w := newAgingWorld(t, store)
	for i := range cleanBatch + 10 {
		put(t, store, historyKey(fmt.Sprintf("%sf%05d", testTree, i), index.Stamp{Time: 1, Gateway: "gw"}, berth.EndOverwritten), "", nil)
	}
	w.pass(defaultAge + time.Hour)
	next, err := w.sync.cleanHistory(t.Context(), "")
	w.check(err)
	equal(t, "deletes of one pass", store.Calls(mem.OpDelete), cleanBatch)
	if next == "" {
		t.Error("the pass says that it reached the end")
	}
	_, err = w.sync.cleanHistory(t.Context(), next)
	w.check(err)
	equal(t, "left", len(bucket(t, store, historyPrefix)), 0)
	if lists := store.Calls(mem.OpList); lists > cleanPages {
		t.Errorf("got %d pages for 2 passes", lists)
	}
}

// What was displaced before its upload can be put into the history, once.
func TestKeepContent(t *testing.T) {
	store := &mem.Store{}
	w := newAgingWorld(t, store)
	n := index.Inode{Mode: index.TypeFile | 0o600, Stamp: index.Stamp{Time: 5 << 16, Gateway: "gw1"}}
	for range 2 {
		w.check(w.sync.KeepContent(t.Context(), testTree+"f", &n, strings.NewReader("bytes"), 5))
	}
	equal(t, "versions", w.versions("f"), []string{"overwritten bytes"})
	equal(t, "uploads", store.Calls(mem.OpPut), 1)
	c, err := w.sync.OpenStamp(t.Context(), testTree+"f", n.Stamp)
	w.check(err)
	equal(t, "mode", c.Mode, n.Mode)
	w.check(c.Close())
	w.create("live", "present")
	w.flush()
	c, err = w.sync.OpenStamp(t.Context(), testTree+"live", w.at("live").Stamp)
	w.check(err)
	b, err := io.ReadAll(c)
	w.check(errors.Join(err, c.Close()))
	equal(t, "what is not displaced yet", string(b), "present")
	if _, err := w.sync.OpenStamp(t.Context(), testTree+"live", n.Stamp); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a stamp that nothing has: got %v", err)
	}
}

// The keys of the history read back, fit every store, and are few for one path.
func TestHistoryKeys(t *testing.T) {
	stamp := versionStamp(index.Stamp{Time: 1 << 40, Gateway: "abcdefghij012345"}, 0, "etag")
	for end := range ends {
		for _, key := range []string{"a", testTree + "d/f", strings.Repeat("long/", 204) + "key"} {
			k := historyKey(key, stamp, end)
			if err := object.CheckKey(k); err != nil {
				t.Error(err)
			}
			got, v, ok := toVersion(object.Info{Key: k, Size: 7})
			if !ok || v.End != end || v.Size != 7 || got != key && !isLong(got) {
				t.Errorf("%s reads back as %q, %+v, %v", k, got, v, ok)
			}
		}
	}
	foreign := versionStamp(index.Stamp{Time: 3 << 16}, 1_700_000_000e9, "AB-12\"")
	equal(t, "stamp of a foreign object", foreign.String(), fmt.Sprintf("%016x-ab12", 1_700_000_000_000<<16))
	for _, id := range []string{"", "x", ".1o", "0000000000000001-gw", "0000000000000001-gw.2o", "0000000000000001-gw.1x", "0000000000000001-GW.1o"} {
		if _, _, ok := parseVersionID(id); ok {
			t.Errorf("%q counts as a version", id)
		}
	}
}

// That berth's own windows are bounded costs no more than a version.
func TestWindowsAreBounded(t *testing.T) {
	var w windows
	for i := range 3 * maxWindows {
		w.over(fmt.Sprint(i), index.Stamp{Time: 1 << 30})
	}
	if len(w.last) > maxWindows {
		t.Errorf("got %d windows", len(w.last))
	}
}
