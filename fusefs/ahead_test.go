package fusefs

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

// A countingStore counts what is asked for, and how much of it at a time.
type countingStore struct {
	*mem.Store
	flying, most atomic.Int64
}

func (c *countingStore) enter() (leave func()) {
	n := c.flying.Add(1)
	for m := c.most.Load(); n > m && !c.most.CompareAndSwap(m, n); m = c.most.Load() {
	}
	return func() { c.flying.Add(-1) }
}

func (c *countingStore) Get(ctx context.Context, key string, o object.GetOptions) (io.ReadCloser, object.Info, error) {
	defer c.enter()()
	return c.Store.Get(ctx, key, o)
}

func (c *countingStore) List(ctx context.Context, o object.ListOptions) (object.Page, error) {
	defer c.enter()()
	return c.Store.List(ctx, o)
}

// newCold mounts a bucket with objects that nothing here has seen yet.
func newCold(t *testing.T, objects map[string]string, change ...func(*Options)) (*rig, *countingStore) {
	t.Helper()
	store := &countingStore{Store: new(mem.Store)}
	for key, content := range objects {
		_, err := store.Put(t.Context(), key, strings.NewReader(content), int64(len(content)), object.PutOptions{})
		must(t, err)
	}
	return newRig(t, append(change, func(o *Options) { o.Store = store })...), store
}

// requests returns how many HEADs, GETs and LISTs there were, when no more come.
func (c *countingStore) requests(t *testing.T) (heads, gets, lists int) {
	t.Helper()
	count := func() [3]int { return [3]int{c.Calls(mem.OpHead), c.Calls(mem.OpGet), c.Calls(mem.OpList)} }
	last, since := count(), time.Now()
	eventually(t, "the requests end", func() bool {
		if now := count(); now != last || c.flying.Load() > 0 {
			last, since = now, time.Now()
		}
		return time.Since(since) > 100*time.Millisecond
	})
	return last[0], last[1], last[2]
}

// Small files that are read one by one take one request each, and most of these
// are made before somebody waits.
func TestReadAhead(t *testing.T) {
	objects := make(map[string]string)
	for d := range 10 {
		for i := range 20 {
			objects[fmt.Sprintf("src/d%02d/f%02d", d, i)] = fmt.Sprint("content ", d, i)
		}
	}
	r, store := newCold(t, objects)
	defer store.Inject(mem.Fault{Op: mem.OpGet, Delay: 20 * time.Millisecond})()
	defer store.Inject(mem.Fault{Op: mem.OpList, Delay: 20 * time.Millisecond})()
	begin := time.Now()
	must(t, filepath.WalkDir(r.path("src"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		got, err := os.ReadFile(path)
		if want := objects[strings.TrimPrefix(path, r.dir+"/")]; string(got) != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
		return err
	}))
	took := time.Since(begin)
	heads, gets, lists := store.requests(t)
	t.Logf("%d HEAD, %d GET, %d LIST, at most %d at a time, %v", heads, gets, lists, store.most.Load(), took)
	if heads > 0 || gets != len(objects) || lists > 12 {
		t.Errorf("got %d HEAD, %d GET, %d LIST, want none, one for each file, one for each directory", heads, gets, lists)
	}
	if one := 20 * time.Millisecond; took > time.Duration(len(objects))*one/2 {
		t.Errorf("reading took %v: the requests were made one after the other", took)
	}
	if n := store.most.Load(); n < 4 || n > 64 {
		t.Errorf("%d requests at a time, want 4 to 64", n)
	}
}

// What nobody goes through is not fetched.
func TestNoReadAhead(t *testing.T) {
	objects := make(map[string]string)
	for i := range 200 {
		objects[fmt.Sprintf("small/f%03d", i)] = "small"
		objects[fmt.Sprintf("large/f%03d", i)] = strings.Repeat("large", 10000)
	}
	read := func(name string) func(*testing.T, *rig) {
		return func(t *testing.T, r *rig) {
			_, err := os.ReadFile(r.path(name))
			must(t, err)
		}
	}
	for _, test := range []struct {
		name        string
		do          func(*testing.T, *rig)
		full        bool
		heads, gets int // at most
	}{
		{"one file", read("small/f050"), false, 0, 1},
		{"two files", func(t *testing.T, r *rig) {
			read("small/f150")(t, r)
			read("small/f050")(t, r)
		}, false, 0, 66},
		{"attributes of large files", func(t *testing.T, r *rig) {
			entries, err := os.ReadDir(r.path("large"))
			must(t, err)
			for _, e := range entries {
				_, err := e.Info()
				must(t, err)
			}
		}, false, 200, 0},
		{"a full cache", func(t *testing.T, r *rig) {
			for i := range 10 {
				read(fmt.Sprintf("small/f%03d", i))(t, r)
			}
		}, true, 200, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, store := newCold(t, objects, func(o *Options) {
				if test.full {
					o.CacheBytes = 1
				}
			})
			if test.full {
				held, err := os.Create(r.path("held"))
				must(t, err)
				defer held.Close()
				_, err = held.WriteString("dirty")
				must(t, err)
				must(t, r.evict(false))
			}
			test.do(t, r)
			if heads, gets, _ := store.requests(t); heads > test.heads || gets > test.gets {
				t.Errorf("got %d HEAD and %d GET, want at most %d and %d", heads, gets, test.heads, test.gets)
			}
		})
	}
}

// A symlink among small files is one after a single request.
func TestLinkAhead(t *testing.T) {
	r, store := newCold(t, nil)
	_, err := store.Put(t.Context(), "l", strings.NewReader("target"), 6, object.PutOptions{Metadata: map[string]string{"file-permissions": "0120777"}})
	must(t, err)
	if got, err := os.Readlink(r.path("l")); err != nil || got != "target" {
		t.Errorf("got %q, %v, want target", got, err)
	}
	if heads, gets, _ := store.requests(t); heads > 0 || gets != 1 {
		t.Errorf("got %d HEAD and %d GET, want one GET", heads, gets)
	}
}
