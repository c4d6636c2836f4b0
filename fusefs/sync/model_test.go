package sync

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/fusefs/index"
	"berth/fusefs/object"
	"berth/fusefs/object/embedded/embeddedtest"
	"berth/fusefs/object/mem"
)

// A model does random things to a world and remembers what each file should hold.
type model struct {
	*world
	wit     *witness
	rand    *rand.Rand
	content map[index.Ino]string
	names   []string // of which paths are made: few, so that they meet
}

func newModel(w *world, wit *witness, r *rand.Rand) *model {
	return &model{world: w, wit: wit, rand: r, content: make(map[index.Ino]string), names: []string{"a", "b", "c", "a.b", "d"}}
}

// dirs returns the directories, files all else.
func (m *model) scan() (dirs, files []string) {
	dirs = []string{""}
	for _, p := range m.paths("", m.root) {
		if d, ok := strings.CutSuffix(p, "/"); ok {
			dirs = append(dirs, d)
		} else {
			files = append(files, p)
		}
	}
	return dirs, files
}

func (m *model) pick(from []string) string { return from[m.rand.IntN(len(from))] }

func (m *model) path(dirs []string) string { return path.Join(m.pick(dirs), m.pick(m.names)) }

func (m *model) text() string {
	return strings.Repeat(fmt.Sprintf("%d ", m.rand.Uint64()), m.rand.IntN(4))
}

func (m *model) exists(p string) bool {
	_, err := m.lookup(p)
	return err == nil
}

func (m *model) isFile(p string) bool {
	n := m.at(p)
	return n.IsFile()
}

// step does one thing, or nothing where it makes no sense.
func (m *model) step() {
	dirs, files := m.scan()
	p := m.path(dirs)
	op := m.rand.IntN(20)
	defer m.note(op)()
	if len(files) == 0 && op > 8 {
		return
	}
	switch op {
	case 0, 1, 2, 3, 4:
		if !m.exists(p) {
			text := m.text()
			m.content[m.create(p, text)] = text
		}
	case 5, 6:
		if !m.exists(p) && strings.Count(p, "/") < 4 {
			m.mkdir(p)
		}
	case 7:
		if d := m.pick(dirs); d != "" && len(m.paths("", m.at(d).Ino)) == 0 {
			m.unlink(d)
		}
	case 8:
		m.renameDir(dirs)
	case 9, 10, 11:
		if f := m.pick(files); m.isFile(f) {
			text := m.text()
			m.write(f, text)
			m.content[m.at(f).Ino] = text
		}
	case 12, 13:
		m.unlink(m.pick(files))
	case 14, 15:
		m.renameFile(m.pick(files), p)
	case 16:
		if f := m.pick(files); m.isFile(f) && !m.exists(p) {
			m.hardlink(f, p)
		}
	case 17:
		m.chmod(m.pick(append(files, dirs[1:]...)), uint32(0o400|m.rand.IntN(0o400)))
	case 18:
		if f, g := m.pick(files), m.pick(files); m.isFile(f) && m.isFile(g) && m.at(f).Ino != m.at(g).Ino {
			m.swap(f, g)
		}
	case 19:
		if m.rand.IntN(2) == 0 {
			m.evict(m.pick(files))
		} else if !m.exists(p) {
			m.symlink(p, "to "+m.text())
		}
	}
}

// note writes what a step changed to the witness's log.
func (m *model) note(op int) func() {
	before := m.paths("", m.root)
	return func() {
		after := m.paths("", m.root)
		m.wit.note("step %d: gone %q, new %q", op, without(before, after), without(after, before))
	}
}

func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(p string) bool { return slices.Contains(b, p) })
}

func (m *model) renameDir(dirs []string) {
	from, to := m.pick(dirs), m.path(dirs)
	if from == "" || from == to || strings.HasPrefix(to, from+"/") || m.exists(to) || strings.Count(to, "/") > 3 {
		return
	}
	m.rename(from, to)
}

func (m *model) renameFile(from, to string) {
	if from == to {
		return
	}
	if n, err := m.lookup(to); err == nil && (n.IsDir() || n.Ino == m.at(from).Ino) {
		return
	}
	m.rename(from, to)
}

// evict removes the content of a file that is in the bucket.
func (m *model) evict(p string) {
	n := m.at(p)
	evicted := false
	m.update(func(b *index.Batch) error {
		n, err := m.db.Inode(n.Ino)
		if err != nil || !n.IsFile() || n.Remote {
			return err
		}
		held, err := m.db.Holders(n.Ino)
		if err != nil {
			return err
		}
		for _, r := range held {
			if r.Gen == n.Gen && r.ETag != "" && !r.Doomed && r.Intent.Gen == 0 {
				n.Remote, evicted = true, true
			}
		}
		b.PutInode(n)
		return nil
	})
	if evicted {
		m.check(m.cache.Remove(n.Ino))
	}
}

// verifyContent compares every file with what was written to it last.
func (m *model) verifyContent() {
	m.t.Helper()
	_, files := m.scan()
	for _, p := range files {
		n := m.at(p)
		want, known := m.content[n.Ino]
		if known && n.IsFile() {
			if got := m.read(p); got != want {
				m.t.Errorf("content of %q: got %.60q, want %.60q", p, got, want)
			}
		}
	}
}

// runModel runs some rounds of random work with faults and restarts; after each
// the bucket must be the namespace.
func runModel(t *testing.T, seed uint64, inner object.Store, rounds, steps int, fails float64) {
	r := rand.New(rand.NewPCG(seed, 0))
	wit := &witness{Store: inner, t: t}
	store := &flaky{Store: wit, rand: rand.New(rand.NewPCG(seed, 1))}
	for i := range 30 {
		put(t, inner, fmt.Sprintf("%sa/f%d/%d", testTree, i%4, i), fmt.Sprint("foreign ", i), nil)
	}
	w := newWorld(t, store, nil)
	wit.inode = func(ino index.Ino) (index.Inode, error) { return w.db.Inode(ino) }
	m := newModel(w, wit, r)
	m.list("")
	for round := range rounds {
		store.setFails(fails)
		for range steps {
			m.step()
			if r.IntN(40) == 0 {
				wit.note("restart")
				m.kill()
				m.open()
			}
			if r.IntN(10) == 0 {
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond) // lets work begin between the steps
			}
		}
		store.setFails(0)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		if err := m.sync.Flush(ctx, "", nil); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		cancel()
		m.verify()
		m.verifyContent()
		if t.Failed() {
			t.Fatalf("seed %d, round %d", seed, round)
		}
	}
	m.unchangedByListing()
}

// unchangedByListing lists everything anew: nothing was changed by others.
func (m *model) unchangedByListing() {
	m.t.Helper()
	before := m.paths("", m.root)
	dirs, _ := m.scan()
	for _, d := range dirs {
		m.relist(d)
	}
	equal(m.t, "names after listing again", m.paths("", m.root), before)
	m.verify()
	m.verifyContent()
}

var (
	firstSeed = flag.Uint64("seed", 0, "first seed of the model test")
	seedCount = flag.Int("seeds", 4, "how many seeds the model test runs")
)

func TestModel(t *testing.T) {
	seeds := *seedCount
	if testing.Short() {
		seeds = min(seeds, 2)
	}
	for seed := range seeds {
		seed := *firstSeed + uint64(seed)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			runModel(t, seed, &mem.Store{}, 2, 100, 0.15)
		})
	}
}

func TestModelOnRealStore(t *testing.T) {
	runModel(t, 42, embeddedtest.Open(t), 1, 80, 0.1)
}
