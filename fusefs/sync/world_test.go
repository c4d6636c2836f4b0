package sync

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"berth"
	"berth/fusefs/cache"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

const testTree = "acme/shared/"

// A world is a small file system over an index, with the Syncer under test: what
// fusefs does, without a kernel.
type world struct {
	t     testing.TB
	dir   string
	tree  string
	store object.Store
	opts  func(*Options)

	db    *index.DB
	cache *cache.Cache
	sync  *Syncer
	root  index.Ino

	mu        sync.Mutex // protects the fields below
	busy      map[index.Ino]bool
	inUse     map[index.Ino]bool
	snapshots map[index.Ino]string
	entries   []index.Name
	inodes    []index.Ino
	changes   []berth.Change
}

func newWorld(t testing.TB, store object.Store, opts func(*Options)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), tree: testTree, store: store, opts: opts}
	w.open()
	t.Cleanup(w.stop)
	return w
}

// open opens index and cache and starts the work, as after a process start.
func (w *world) open() {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(testWriter{w.t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	var err error
	w.db, err = index.Open(w.dir+"/index", log)
	w.check(err)
	w.cache, err = cache.Open(w.dir + "/cache")
	w.check(err)
	w.busy, w.inUse, w.snapshots = map[index.Ino]bool{}, map[index.Ino]bool{}, map[index.Ino]string{}
	o := Options{DB: w.db, Store: w.store, Cache: w.cache, Hooks: w, Gateway: "gw1", Owner: true, Logger: log}
	if w.opts != nil {
		w.opts(&o)
	}
	w.sync, err = New(o)
	w.check(err)
	root, ok, err := w.db.Tree(w.tree)
	w.check(err)
	if !ok {
		root, err = w.db.NewIno()
		w.check(err)
		w.update(func(b *index.Batch) error {
			b.PutInode(index.Inode{Ino: root, Tree: root, Mode: index.TypeDir | 0o755, Links: 1, Gen: 1})
			b.PutTree(w.tree, root)
			return nil
		})
	}
	w.root = root
	w.sync.Start()
}

// stop ends the process in good order, kill without.
func (w *world) stop() {
	if w.sync == nil {
		return
	}
	w.kill()
}

func (w *world) kill() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.sync.Close(ctx)
	w.check(w.db.Close())
	w.sync = nil
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) update(f func(b *index.Batch) error) {
	w.t.Helper()
	w.check(w.db.Update(f))
}

// Hooks.

func (w *world) EntryChanged(parent index.Ino, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries = append(w.entries, index.Name{Parent: parent, Name: name})
}
func (w *world) InodeChanged(ino index.Ino) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inodes = append(w.inodes, ino)
}
func (w *world) Publish(c berth.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = append(w.changes, c)
}
func (w *world) Busy(ino index.Ino) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy[ino]
}
func (w *world) InUse(ino index.Ino) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy[ino] || w.inUse[ino]
}
func (w *world) Snapshot(ino index.Ino) (string, uint64, func(), bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.snapshots[ino]
	n, err := w.db.Inode(ino)
	return p, n.Gen, func() {}, ok && err == nil
}

func (w *world) setBusy(ino index.Ino, busy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[ino] = busy
}

// lookup returns the inode at a path.
func (w *world) lookup(p string) (index.Inode, error) {
	at := w.root
	if p != "" {
		for name := range strings.SplitSeq(p, "/") {
			e, err := w.db.Lookup(at, name)
			if err != nil {
				return index.Inode{}, err
			}
			at = e.Ino
		}
	}
	return w.db.Inode(at)
}

func (w *world) at(p string) index.Inode {
	w.t.Helper()
	n, err := w.lookup(p)
	w.check(err)
	return n
}

// describe is at for a file that is about to be changed: what it is gets asked
// for first, again if the store fails.
func (w *world) describe(p string) index.Inode {
	w.t.Helper()
	n := w.at(p)
	w.waitFor("the attributes of "+p, func() bool { return w.sync.Describe(context.Background(), n.Ino) == nil })
	return w.at(p)
}

func (w *world) parent(p string) (index.Inode, string) {
	w.t.Helper()
	dir, name := path.Split(p)
	return w.at(strings.TrimSuffix(dir, "/")), name
}

// link gives an inode a name inside Update, as fusefs does it.
func (w *world) link(b *index.Batch, parent index.Ino, name string, n *index.Inode) error {
	b.Link(parent, name, n.Ino, n.Mode&index.TypeMask)
	key, err := w.sync.nameKey(index.Name{Parent: parent, Name: name}, n.IsDir())
	if err != nil {
		return err
	}
	if r, ok, err := w.db.Remote(key); err != nil {
		return err
	} else if ok && r.Doomed {
		r.Doomed = false
		b.PutRemote(r)
	}
	return nil
}

func (w *world) doom(b *index.Batch, parent index.Ino, name string, dir bool) error {
	key, err := w.sync.nameKey(index.Name{Parent: parent, Name: name}, dir)
	if err != nil {
		return err
	}
	r, ok, err := w.db.Remote(key)
	if err != nil || !ok {
		return err
	}
	r.Doomed = true
	b.PutRemote(r)
	return nil
}

func (w *world) make(p string, n index.Inode) index.Ino {
	w.t.Helper()
	dir, name := w.parent(p)
	var err error
	n.Ino, err = w.db.NewIno()
	w.check(err)
	if n.IsFile() {
		f, err := w.cache.Create(n.Ino)
		w.check(err)
		_, err = f.WriteString(n.Target)
		w.check(err)
		w.check(f.Close())
		n.Size, n.Target = int64(len(n.Target)), ""
	}
	w.update(func(b *index.Batch) error {
		n.Tree, n.Links, n.Gen = dir.Tree, 1, 1
		n.Mtime = w.sync.now().UnixNano()
		n.Ctime = n.Mtime
		n.Stamp = w.sync.Clock().Now()
		n.AttrStamp = n.Stamp
		if n.IsDir() {
			n.Parent, n.Name, n.Explicit, n.Listed = dir.Ino, name, true, 1
		}
		b.PutInode(n)
		b.Enqueue(n.Ino, n.Mtime)
		return w.link(b, dir.Ino, name, &n)
	})
	w.sync.Kick(n.Ino)
	return n.Ino
}

func (w *world) create(p, content string) index.Ino {
	w.t.Helper()
	return w.make(p, index.Inode{Mode: index.TypeFile | 0o644, Target: content})
}
func (w *world) mkdir(p string) index.Ino {
	w.t.Helper()
	return w.make(p, index.Inode{Mode: index.TypeDir | 0o755})
}
func (w *world) symlink(p, target string) index.Ino {
	w.t.Helper()
	return w.make(p, index.Inode{Mode: index.TypeSymlink | 0o777, Target: target, Size: int64(len(target))})
}

// write replaces the content of a file: open, write, close and settle.
func (w *world) write(p, content string) {
	w.t.Helper()
	n := w.describe(p)
	w.setBusy(n.Ino, true)
	w.update(func(b *index.Batch) error {
		n, err := w.db.Inode(n.Ino)
		if err != nil {
			return err
		}
		n.Remote = false
		b.PutInode(n)
		b.MarkOpen(n.Ino, index.OpenMark{Fresh: true})
		return nil
	})
	f, err := w.cache.Create(n.Ino)
	w.check(err)
	_, err = f.WriteString(content)
	w.check(err)
	w.check(f.Close())
	w.settle(n.Ino, int64(len(content)))
}

func (w *world) settle(ino index.Ino, size int64) {
	w.t.Helper()
	w.update(func(b *index.Batch) error {
		n, err := w.db.Inode(ino)
		if err != nil {
			return err
		}
		n.Gen++
		n.Size, n.Mtime = size, w.sync.now().UnixNano()
		n.Stamp = w.sync.Clock().Now()
		b.PutInode(n)
		b.ClearOpen(ino)
		b.Enqueue(ino, n.Mtime)
		return nil
	})
	w.setBusy(ino, false)
	w.sync.Kick(ino)
}

// chmod changes attributes, describing the file first as fusefs does.
func (w *world) chmod(p string, mode uint32) {
	w.t.Helper()
	n := w.describe(p)
	w.update(func(b *index.Batch) error {
		n, err := w.db.Inode(n.Ino)
		if err != nil {
			return err
		}
		n.Mode = n.Mode&^0o7777 | mode
		n.Xattrs = map[string][]byte{"user.mode": []byte(fmt.Sprintf("%o\x00", mode))}
		n.AttrStamp = w.sync.Clock().Now()
		if n.IsDir() {
			n.Explicit = true
		}
		b.PutInode(n)
		b.Enqueue(n.Ino, w.sync.now().UnixNano())
		return nil
	})
	w.sync.Kick(n.Ino)
}

func (w *world) unlink(p string) {
	w.t.Helper()
	dir, name := w.parent(p)
	n := w.at(p)
	w.update(func(b *index.Batch) error {
		if err := w.drop(b, dir.Ino, name, n.Ino); err != nil {
			return err
		}
		return w.doom(b, dir.Ino, name, n.IsDir())
	})
	w.sync.KickDoomed()
	w.sync.Kick(n.Ino)
}

// drop takes one name from an inode, which goes with its last.
func (w *world) drop(b *index.Batch, dir index.Ino, name string, ino index.Ino) error {
	n, err := w.db.Inode(ino)
	if err != nil {
		return err
	}
	b.Unlink(dir, name, ino)
	if n.Links--; n.Links == 0 {
		b.DeleteInode(ino)
		return nil
	}
	b.PutInode(n)
	b.Enqueue(ino, w.sync.now().UnixNano())
	return nil
}

func (w *world) hardlink(p, to string) {
	w.t.Helper()
	n := w.describe(p)
	dir, name := w.parent(to)
	w.update(func(b *index.Batch) error {
		n, err := w.db.Inode(n.Ino)
		if err != nil {
			return err
		}
		n.Links++
		n.AttrStamp = w.sync.Clock().Now()
		b.PutInode(n)
		b.Enqueue(n.Ino, w.sync.now().UnixNano())
		return w.link(b, dir.Ino, name, &n)
	})
	w.sync.Kick(n.Ino)
}

// rename moves a name, over another file if there is one.
func (w *world) rename(from, to string) {
	w.t.Helper()
	fromDir, fromName := w.parent(from)
	toDir, toName := w.parent(to)
	n := w.at(from)
	w.update(func(b *index.Batch) error {
		n, err := w.db.Inode(n.Ino)
		if err != nil {
			return err
		}
		if e, err := w.db.Lookup(toDir.Ino, toName); err == nil {
			if err := w.drop(b, toDir.Ino, toName, e.Ino); err != nil {
				return err
			}
		}
		b.Unlink(fromDir.Ino, fromName, n.Ino)
		if n.IsDir() {
			key, err := w.sync.dirKey(n.Ino)
			if err != nil {
				return err
			}
			b.AddMove(key, n.Ino)
			n.Parent, n.Name, n.Explicit = toDir.Ino, toName, true
		} else if err := w.doom(b, fromDir.Ino, fromName, false); err != nil {
			return err
		}
		n.AttrStamp = w.sync.Clock().Now()
		if n.IsFile() {
			n.Stamp = n.AttrStamp
		}
		b.PutInode(n)
		b.Enqueue(n.Ino, w.sync.now().UnixNano())
		return w.link(b, toDir.Ino, toName, &n)
	})
	w.sync.Kick(n.Ino)
	w.sync.KickDoomed()
	w.sync.KickMoves()
}

// swap exchanges the names of two files.
func (w *world) swap(p, q string) {
	w.t.Helper()
	pDir, pName := w.parent(p)
	qDir, qName := w.parent(q)
	pn, qn := w.describe(p), w.describe(q)
	w.update(func(b *index.Batch) error {
		b.Unlink(pDir.Ino, pName, pn.Ino)
		b.Unlink(qDir.Ino, qName, qn.Ino)
		for _, n := range []index.Inode{pn, qn} {
			n, err := w.db.Inode(n.Ino)
			if err != nil {
				return err
			}
			n.AttrStamp = w.sync.Clock().Now()
			n.Stamp = n.AttrStamp
			b.PutInode(n)
			b.Enqueue(n.Ino, w.sync.now().UnixNano())
		}
		b.Link(pDir.Ino, pName, qn.Ino, index.TypeFile)
		b.Link(qDir.Ino, qName, pn.Ino, index.TypeFile)
		return nil
	})
	w.sync.Kick(pn.Ino)
	w.sync.Kick(qn.Ino)
}

func (w *world) flush() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	w.check(w.sync.Flush(ctx, "", nil))
}

// read returns the content of a file, fetching it if it is not here.
func (w *world) read(p string) string {
	w.t.Helper()
	n := w.at(p)
	w.check(w.sync.Fetch(context.Background(), n.Ino))
	n = w.at(p)
	if n.IsSymlink() {
		return n.Target
	}
	b, err := os.ReadFile(w.cache.Path(n.Ino))
	w.check(err)
	return string(b)
}

// list makes sure that everything below a directory was listed.
func (w *world) list(p string) {
	w.t.Helper()
	n := w.at(p)
	w.check(w.sync.List(context.Background(), n.Ino))
	entries, err := w.db.Entries(n.Ino, "", 1<<20)
	w.check(err)
	for _, e := range entries {
		if e.Type == index.TypeDir {
			w.list(path.Join(p, e.Name))
		}
	}
}

// relist lists a directory anew in the foreground.
func (w *world) relist(p string) {
	w.t.Helper()
	w.check(w.sync.list(context.Background(), w.at(p).Ino, true))
}

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
		want := encodeMetadata(n, true)
		if n.Stamp.IsZero() && n.AttrStamp.IsZero() {
			want = info.Metadata // nobody has changed the attributes since
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
