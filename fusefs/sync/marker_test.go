package sync

import (
	"context"
	"io"
	"strings"
	"testing"

	"berth/fusefs/index"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

// A gated store keeps requests that change keys with a prefix waiting at its gate.
type gated struct {
	object.Store
	prefix  string
	reached chan string   // gets the key of each request that waits
	open    chan struct{} // closed to let all of them pass
}

func newGated(store object.Store, prefix string) *gated {
	return &gated{Store: store, prefix: prefix, reached: make(chan string, 16), open: make(chan struct{})}
}

func (s *gated) wait(ctx context.Context, key string) {
	if !strings.HasPrefix(key, s.prefix) {
		return
	}
	select {
	case s.reached <- key:
	default: // nobody asks for so many
	}
	select {
	case <-s.open:
	case <-ctx.Done():
	}
}

func (s *gated) Put(ctx context.Context, key string, body io.ReaderAt, size int64, o object.PutOptions) (object.Info, error) {
	s.wait(ctx, key)
	return s.Store.Put(ctx, key, body, size, o)
}

func (s *gated) Delete(ctx context.Context, key, ifMatch string) error {
	s.wait(ctx, key)
	return s.Store.Delete(ctx, key, ifMatch)
}

// A directory is renamed while its marker and a file in it are on the way: both
// go from the old keys when they have arrived there.
func TestRenameDuringUpload(t *testing.T) {
	for _, key := range []string{"p/d/", "p/d/f"} {
		t.Run(key, func(t *testing.T) {
			store := newGated(&mem.Store{}, testTree+key)
			w := newWorld(t, store, nil)
			w.mkdir("p")
			w.mkdir("p/d")
			w.create("p/d/f", "content")
			<-store.reached
			w.rename("p", "q")
			w.waitFor("the end of the rename", func() bool {
				moves, err := w.db.Moves()
				return err == nil && len(moves) == 0
			})
			close(store.open)
			w.flush()
			w.flush() // for what was doomed by the answers
			w.verify()
		})
	}
}

// A file comes back below a directory that was renamed: the directory that it is
// in has no marker, so that the one of the renamed directory goes all the same.
func TestMarkerBesideFileThatCameBack(t *testing.T) {
	onBoth(t, func(t *testing.T, store object.Store) {
		w := newWorld(t, store, nil)
		w.mkdir("d")
		w.create("d/f", "mine")
		w.flush()
		put(t, store, testTree+"d/f", "theirs", nil)
		w.rename("d", "e")
		w.flush()
		w.flush() // for what the deletes of the first found
		w.verify()
		equal(t, "content that came back", w.read("d/f"), "theirs")
		equal(t, "content of the renamed file", w.read("e/f"), "mine")
	})
}

// The directories below a renamed one were never listed: their markers follow it
// with what they say.
func TestUnknownMarkersFollowRename(t *testing.T) {
	onBoth(t, func(t *testing.T, store object.Store) {
		put(t, store, testTree+"old/", "", nil)
		put(t, store, testTree+"old/f", "x", nil)
		put(t, store, testTree+"old/sub/", "", map[string]string{metaPermissions: "0040711"})
		put(t, store, testTree+"old/deep/er/", "", map[string]string{metaPermissions: "0040700"})
		w := newWorld(t, store, nil)
		w.check(w.sync.List(context.Background(), w.root))
		w.rename("old", "new")
		w.flush()
		w.flush() // for what was doomed by the answers
		w.verify()
		equal(t, "mode of a directory that was known", w.at("new/sub").Mode&0o777, uint32(0o711))
		equal(t, "mode of one that was not", w.at("new/deep/er").Mode&0o777, uint32(0o700))
	})
}

// A key is doomed between the look at its name and the note of what was found
// out: it stays doomed.
func TestNoteOnDoomedKey(t *testing.T) {
	for name, note := range map[string]func(*world, index.Remote, index.Inode, want) error{
		"a name has it again": func(w *world, r index.Remote, _ index.Inode, _ want) error {
			_, err := w.sync.reprieve(r)
			return err
		},
		"others wrote it": func(w *world, r index.Remote, n index.Inode, old want) error {
			put(w.t, w.store.(*gated).Store, r.Key, "", nil)
			info, err := w.store.Head(context.Background(), r.Key)
			w.check(err)
			return w.sync.judge(context.Background(), r, &n, old, info)
		},
	} {
		for _, p := range []string{"d", "f"} {
			t.Run(name+"/"+p, func(t *testing.T) {
				store := newGated(&mem.Store{}, "none")
				w := newWorld(t, store, nil)
				w.mkdir("d")
				w.create("f", "")
				w.flush()
				n := w.at(p)
				names, err := w.sync.wanted(&n)
				w.check(err)
				w.kill()
				store.prefix = names[0].key // no delete of it passes
				w.open()
				w.rename(p, "new")
				var r index.Remote
				w.waitFor("the doom of the old key", func() bool {
					r, _, err = w.db.Remote(names[0].key)
					return err == nil && r.Doomed
				})
				w.check(note(w, r, n, names[0]))
				now, _, err := w.db.Remote(r.Key)
				w.check(err)
				equal(t, "what is known of the old key", now, r)
				close(store.open)
				w.flush()
				w.verify()
			})
		}
	}
}
