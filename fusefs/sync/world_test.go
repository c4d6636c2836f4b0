package sync

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path"
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
func (w *world) Nameless(index.Ino) bool { return false }
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

func (w *world) flush() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
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
	w.idle() // a listing leaves out what an upload still holds
	w.check(w.sync.list(context.Background(), w.at(p).Ino, true))
}

// idle waits until no upload is under way: Flush returns when all is stored, a
// moment before the last one lets go of its file.
func (w *world) idle() {
	w.t.Helper()
	w.waitFor("the uploads to end", func() bool {
		st, err := w.sync.Status()
		return err == nil && st.Running == 0
	})
}
