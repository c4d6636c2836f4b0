package sync

import (
	"context"
	"io"
	"maps"
	"os"
	"path"
	"reflect"
	"strings"
	"testing"

	"berth/fusefs/index"
	"berth/fusefs/object"
)

// bucket returns the objects below the tree by path.
func bucket(t testing.TB, store object.Store, prefix string) map[string]object.Info {
	t.Helper()
	out := make(map[string]object.Info)
	for info, err := range object.All(context.Background(), store, prefix) {
		if err != nil {
			t.Fatal(err)
		}
		full, err := store.Head(context.Background(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(info.Key, prefix)] = full
	}
	return out
}

func content(t testing.TB, store object.Store, key string) string {
	t.Helper()
	body, _, err := store.Get(context.Background(), key, object.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func put(t testing.TB, store object.Store, key, content string, meta map[string]string) {
	t.Helper()
	_, err := store.Put(context.Background(), key, strings.NewReader(content), int64(len(content)), object.PutOptions{Metadata: meta})
	if err != nil {
		t.Fatal(err)
	}
}

// verify compares the bucket with the namespace: each name has its object with
// content and attributes, and nothing else is there.
func (w *world) verify() {
	w.t.Helper()
	objects := bucket(w.t, w.store, w.tree)
	w.verifyDir("", w.root, objects)
	for key := range objects {
		w.t.Errorf("object %q has no name", key)
		w.tell(key)
	}
}

// tell prints what was done to a key, if the store knows.
func (w *world) tell(key string) {
	w.t.Helper()
	r, ok, err := w.db.Remote(w.tree + key)
	w.t.Logf("known of %q: %v %+v %v", key, ok, r, err)
	if f, ok := w.store.(*flaky); ok {
		f.Store.(*witness).tell(key)
	}
}

func (w *world) verifyDir(p string, dir index.Ino, objects map[string]object.Info) {
	w.t.Helper()
	entries, err := w.db.Entries(dir, "", 1<<20)
	w.check(err)
	for _, e := range entries {
		n, err := w.db.Inode(e.Ino)
		w.check(err)
		child := path.Join(p, e.Name)
		key := child
		if n.IsDir() {
			w.verifyDir(child, n.Ino, objects)
			if !n.Explicit {
				continue
			}
			key += "/"
		}
		info, ok := objects[key]
		delete(objects, key)
		if !ok {
			w.t.Errorf("name %q has no object", key)
			w.tell(key)
			continue
		}
		w.verifyObject(key, &n, info)
	}
}

func (w *world) verifyObject(key string, n *index.Inode, info object.Info) {
	w.t.Helper()
	if !n.Bare {
		want := encodeMetadata(n, w.tree+key, true)
		if n.Stamp.IsZero() && n.AttrStamp.IsZero() {
			want = info.Metadata // nobody has changed the attributes since
		}
		// Each gateway has numbers of its own, and may not know all names of a file.
		for _, name := range []string{metaIno, metaKey, metaLinks} {
			if v, ok := info.Metadata[name]; ok {
				want[name] = v
			} else {
				delete(want, name)
			}
		}
		if !maps.Equal(info.Metadata, want) {
			w.t.Errorf("object %q has metadata\n%v, want\n%v", key, info.Metadata, want)
			w.tell(key)
		}
	}
	want := ""
	switch {
	case n.IsSymlink():
		want = n.Target
	case n.IsFile() && n.Remote:
		want = content(w.t, w.store, w.tree+key)
	case n.IsFile():
		b, err := os.ReadFile(w.cache.Path(n.Ino))
		w.check(err)
		want = string(b)
	}
	if got := content(w.t, w.store, w.tree+key); got != want {
		w.t.Errorf("object %q has %.80q, want %.80q", key, got, want)
	}
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
