package sync

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/fusefs/index"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

// twoGateways returns two worlds on one bucket.
func twoGateways(t *testing.T, store object.Store) (a, b *world) {
	open := func(gateway string) *world {
		w := newWorld(t, store, func(o *Options) { o.Gateway, o.Revalidate = gateway, time.Hour })
		w.list("")
		return w
	}
	return open("gw1"), open("gw2")
}

// tickingStore is a store with a second between any two writes: a change of the
// attributes alone shows in a listing by the second of its time only.
func tickingStore() *mem.Store {
	var ticks atomic.Int64
	start := time.Now()
	return &mem.Store{Now: func() time.Time { return start.Add(time.Duration(ticks.Add(1)) * time.Second) }}
}

// meet brings all that both did into the bucket and back.
func meet(a, b *world) {
	a.t.Helper()
	for range 3 {
		for _, w := range []*world{a, b} {
			w.flush()
		}
		for _, w := range []*world{a, b} {
			dirs, _ := (&model{world: w}).scan()
			for _, d := range dirs {
				if _, err := w.lookup(d); err == nil {
					w.relist(d)
				}
			}
			w.list("")
		}
	}
}

// contents returns what a world shows under each path.
func (w *world) contents() map[string]string {
	w.t.Helper()
	out := make(map[string]string)
	for _, p := range w.paths("", w.root) {
		if strings.HasSuffix(p, "/") {
			out[p] = "directory"
			continue
		}
		ino := w.at(p).Ino
		w.check(w.sync.Describe(w.t.Context(), ino))
		out[p] = fmt.Sprintf("%o %s", w.at(p).Mode, w.read(p))
	}
	return out
}

// The later of two writes stays everywhere, the other is in the history.
func TestLaterWriteStays(t *testing.T) {
	for _, later := range []string{"gw1", "gw2"} {
		t.Run(later, func(t *testing.T) {
			store := &mem.Store{}
			a, b := twoGateways(t, store)
			a.create("f", "first")
			meet(a, b)
			equal(t, "content at the other gateway", b.read("f"), "first")
			first, second := a, b
			if later == "gw1" {
				first, second = b, a
			}
			// Neither has seen the other's write when it uploads its own.
			heal := store.Inject(mem.Fault{Op: mem.OpPut, Delay: 50 * time.Millisecond})
			first.write("f", "sooner")
			time.Sleep(2 * time.Millisecond) // the clocks tell the two apart
			second.write("f", "later")
			meet(a, b)
			heal()
			for _, w := range []*world{a, b} {
				equal(t, "content", w.read("f"), "later")
			}
			old := bucket(t, store, historyPrefix)
			equal(t, "versions in the history", len(old), 1)
			for key := range old {
				equal(t, "history", content(t, store, historyPrefix+key), "sooner")
			}
		})
	}
}

// Attributes of one gateway and content of the other merge.
func TestAttributesMerge(t *testing.T) {
	store := tickingStore()
	a, b := twoGateways(t, store)
	a.create("f", "first")
	meet(a, b)
	b.chmod("f", 0o600)
	b.flush()
	a.write("f", "second")
	meet(a, b)
	want := map[string]string{"f": "100600 second"}
	equal(t, "at the writer", a.contents(), want)
	equal(t, "at the other", b.contents(), want)
}

// One gateway uploads, the other changes the attributes before the first has
// listed what it stored: the content is the same, the attributes are not.
func TestAttributesAfterUpload(t *testing.T) {
	var later atomic.Int64
	a, b := twoGateways(t, &mem.Store{Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
	a.create("f", "first")
	meet(a, b)
	b.write("f", "second")
	b.flush()
	later.Store(int64(5 * time.Second)) // the clocks are compared to a second
	a.relist("")
	a.chmod("f", 0o600)
	a.flush()
	meet(a, b)
	want := map[string]string{"f": "100600 second"}
	equal(t, "at the gateway that changed them", a.contents(), want)
	equal(t, "at the other", b.contents(), want)
}

// Two gateways that do random things to a few paths end with the same tree.
func TestGatewaysConverge(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			store := tickingStore()
			a, b := twoGateways(t, store)
			a.mkdir("d")
			meet(a, b)
			for round := range 4 {
				for range 12 {
					w := []*world{a, b}[r.IntN(2)]
					randomFileWork(w, r)
					if r.IntN(3) == 0 {
						w.flush()
					}
				}
				meet(a, b)
				equal(t, fmt.Sprintf("seed %d, round %d: trees", seed, round), a.contents(), b.contents())
				a.verify()
				b.verify()
				if t.Failed() {
					return
				}
			}
		})
	}
}

func randomFileWork(w *world, r *rand.Rand) {
	p := []string{"x", "y", "d/x", "d/y"}[r.IntN(4)]
	if strings.HasPrefix(p, "d/") {
		if _, err := w.lookup("d"); err != nil {
			return
		}
	}
	n, err := w.lookup(p)
	text := fmt.Sprint(r.Uint64())
	switch op := r.IntN(5); {
	case err != nil:
		w.create(p, text)
	case w.sync.Describe(w.t.Context(), n.Ino) != nil: // the other has removed it
	case op < 3 && n.IsFile():
		w.write(p, text)
	case op == 3 && n.Mode&index.TypeMask == index.TypeFile:
		w.chmod(p, uint32(0o600|r.IntN(0o200)))
	case op == 4:
		w.unlink(p)
	}
}
