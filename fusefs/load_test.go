package fusefs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/fusefs/object"
)

// A load works on a mount until the mount dies or it is told to stop, and knows
// what must not be lost.
type load interface {
	// run works below the directory of the mount. A failure ends it silently: the
	// mount may be dead.
	run(dir string, stop <-chan struct{})
	// promise returns the check of all that is promised at the moment of the call,
	// which may run when more has been done. killed says that the process may have
	// died but not the machine. The check returns how many things it looked at.
	promise(killed bool) func(t *testing.T, dir string) (what string, n int)
	// repair does what a user of the load's program does after a crash.
	repair(dir string)
	// whole says whether an object can be one generation of a file of this load;
	// mine is false for other keys.
	whole(key, content string) (whole, mine bool)
}

// startLoads runs loads until the returned function is called, which waits for
// them. It returns when each has done something.
func startLoads(t *testing.T, dir string, loads []load) (stop func()) {
	t.Helper()
	var group sync.WaitGroup
	end := make(chan struct{})
	for _, l := range loads {
		group.Go(func() { l.run(dir, end) })
	}
	return func() { close(end); group.Wait() }
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// A report counts what was checked.
type report struct {
	counts  map[string]int
	objects int
}

func (r *report) add(what string, n int) {
	if r.counts == nil {
		r.counts = make(map[string]int)
	}
	r.counts[what] += n
}

func (r *report) checks() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(r.counts)) {
		parts = append(parts, fmt.Sprint(r.counts[what], " ", what))
	}
	return strings.Join(parts, ", ")
}

// torn looks for objects that are no generation of their file.
func (r *report) torn(t *testing.T, bucket object.Store, loads []load) {
	t.Helper()
	eachObject(t, bucket, func(key, content string) {
		for _, l := range loads {
			if whole, mine := l.whole(key, content); mine && !whole {
				t.Errorf("object %q with %d bytes is no generation of its file", key, len(content))
			}
		}
		r.objects++
	})
}

// plain is what most loads have in common.
type plain struct{ name string }

func (plain) repair(string)                     {}
func (plain) whole(string, string) (_, _ bool)  { return false, false }
func (p plain) path(dir, name string) string    { return filepath.Join(dir, p.name, name) }
func (p plain) under(key string) (string, bool) { return strings.CutPrefix(key, p.name+"/") }
func (p plain) makeDir(dir string) error        { return os.MkdirAll(filepath.Join(dir, p.name), 0o755) }

// A fileLoad makes new files in different ways and closes them. Some it syncs.
type fileLoad struct {
	plain
	mu     sync.Mutex // protects the fields below
	want   map[string]string
	synced map[string]bool
	next   int
}

func newFileLoad(name string) *fileLoad {
	return &fileLoad{plain: plain{name}, want: make(map[string]string), synced: make(map[string]bool)}
}

func fileContent(name string) string {
	i, _ := strconv.Atoi(name)
	return strings.Repeat(name+"\n", 1+i%700)
}

func (l *fileLoad) run(dir string, stop <-chan struct{}) {
	var group sync.WaitGroup
	defer group.Wait()
	if l.makeDir(dir) != nil {
		return
	}
	for range 3 {
		group.Go(func() {
			for !stopped(stop) {
				l.mu.Lock()
				l.next++
				i := l.next
				l.mu.Unlock()
				content, err := l.make(dir, i)
				if err != nil {
					return
				}
				l.mu.Lock()
				l.want[strconv.Itoa(i)] = content
				l.synced[strconv.Itoa(i)] = i%5 == 0
				l.mu.Unlock()
			}
		})
	}
}

func (l *fileLoad) make(dir string, i int) (content string, err error) {
	name := strconv.Itoa(i)
	content = fileContent(name)
	path := l.path(dir, name)
	write := path
	if i%3 == 1 {
		write += ".tmp"
	}
	if err := os.WriteFile(write, []byte(content), 0o644); err != nil {
		return "", err
	}
	if i%5 == 0 {
		defer func() { err = errors.Join(err, syncFile(path)) }()
	}
	if i%3 == 2 {
		content += "more"
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return "", err
		}
		_, err = f.WriteString("more")
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	if write != path {
		err = os.Rename(write, path)
	}
	return content, err
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return syncFile(path)
	})
}

func (l *fileLoad) promise(killed bool) func(t *testing.T, dir string) (string, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	want, synced := maps.Clone(l.want), maps.Clone(l.synced)
	return func(t *testing.T, dir string) (string, int) {
		for name, content := range want {
			got, err := os.ReadFile(l.path(dir, name))
			// What was appended and not synced may be zeros, as ext4 leaves it.
			partial := err == nil && strings.HasPrefix(content, strings.TrimRight(string(got), "\x00"))
			if !killed && !synced[name] && (partial || errors.Is(err, os.ErrNotExist)) {
				continue
			}
			if err != nil || string(got) != content {
				t.Errorf("%s: got %d bytes %.60q, %v, want %d (synced %v)", l.path(dir, name), len(got), got, err, len(content), synced[name])
			}
		}
		if !killed {
			clear(l.want) // what came after the promise is not there
		}
		return "closed files", len(want)
	}
}

func (l *fileLoad) whole(key, content string) (bool, bool) {
	name, mine := l.under(key)
	name = strings.TrimSuffix(name, ".tmp")
	base := fileContent(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, closed := l.want[name]; !closed { // it was open at a kill
		return strings.HasPrefix(base+"more", content), mine
	}
	return content == base || content == base+"more", mine
}

// A journalLoad appends lines to a file that it keeps open, and syncs after each.
type journalLoad struct {
	plain
	mu    sync.Mutex // protects the fields below
	files []int      // synced lines of each file
}

func newJournalLoad(name string) *journalLoad { return &journalLoad{plain: plain{name}} }

func (l *journalLoad) run(dir string, stop <-chan struct{}) {
	l.mu.Lock()
	n := len(l.files)
	l.files = append(l.files, 0)
	l.mu.Unlock()
	if l.makeDir(dir) != nil {
		return
	}
	f, err := os.Create(l.path(dir, strconv.Itoa(n)))
	if err != nil {
		return
	}
	defer f.Close()
	for i := 1; !stopped(stop); i++ {
		_, err := fmt.Fprintf(f, "line %d of %d\n", i, n)
		if errors.Join(err, f.Sync()) != nil {
			return
		}
		l.mu.Lock()
		l.files[n] = i
		l.mu.Unlock()
	}
}

func (l *journalLoad) promise(killed bool) func(t *testing.T, dir string) (string, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	files := slices.Clone(l.files)
	return func(t *testing.T, dir string) (string, int) {
		all := 0
		if !killed {
			l.files = files // what came after the promise is not there
		}
		for n, lines := range files {
			if lines == 0 {
				continue
			}
			all += lines
			var want strings.Builder
			for i := range lines {
				fmt.Fprintf(&want, "line %d of %d\n", i+1, n)
			}
			if got, err := os.ReadFile(l.path(dir, strconv.Itoa(n))); err != nil || !strings.HasPrefix(string(got), want.String()) {
				t.Errorf("%s: got %d bytes %.200q, %v, want %d synced ones first", l.path(dir, strconv.Itoa(n)), len(got), got, err, want.Len())
			}
		}
		return "synced lines", all
	}
}

// generationText is content that tells which one it is, and whether all of it is there.
func generationText(g int) string {
	line := fmt.Sprintf("generation %d\n", g)
	return strings.Repeat(line, 1+(g*7919)%9000)
}

// wholeGeneration reads what generationText wrote; ok is false if it is not whole.
func wholeGeneration(content string) (g int, ok bool) {
	if _, err := fmt.Sscanf(content, "generation %d\n", &g); err != nil {
		return 0, false
	}
	return g, content == generationText(g)
}

// A replaceLoad puts generations of one file in each other's place: by a rename,
// or by opening it with O_TRUNC.
type replaceLoad struct {
	plain
	truncate bool
	mu       sync.Mutex // protects done
	done     int
}

func newReplaceLoad(name string) *replaceLoad { return &replaceLoad{plain: plain{name}} }
func newTruncateLoad(name string) *replaceLoad {
	return &replaceLoad{plain: plain{name}, truncate: true}
}

func (l *replaceLoad) run(dir string, stop <-chan struct{}) {
	if l.makeDir(dir) != nil {
		return
	}
	for !stopped(stop) {
		l.mu.Lock()
		g := l.done + 1
		l.mu.Unlock()
		path := l.path(dir, "file")
		if g == 2 && syncFile(path) != nil {
			return // so that there is a generation which must not be lost
		}
		if l.truncate {
			if os.WriteFile(path, []byte(generationText(g)), 0o644) != nil {
				return
			}
		} else if os.WriteFile(path+".new", []byte(generationText(g)), 0o644) != nil || os.Rename(path+".new", path) != nil {
			return
		}
		l.mu.Lock()
		l.done = g
		l.mu.Unlock()
		time.Sleep(time.Millisecond) // the other loads have their share of the processor
	}
}

func (l *replaceLoad) promise(killed bool) func(t *testing.T, dir string) (string, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	done := l.done
	return func(t *testing.T, dir string) (string, int) {
		data, err := os.ReadFile(l.path(dir, "file"))
		if errors.Is(err, os.ErrNotExist) && (!killed && done <= 1 || done == 0) {
			return l.name + " generations", 0 // its name was never synced
		}
		g, whole := wholeGeneration(string(data))
		next := generationText(done + 1)
		switch {
		case err != nil:
			t.Errorf("%s: %v", l.path(dir, "file"), err)
		case killed && g >= done && whole:
		case !killed && whole:
		case l.truncate && killed && strings.HasPrefix(next, string(data)): // it was not closed
		case !killed && done <= 1: // it was never synced
		default:
			t.Errorf("%s: got %d bytes of generation %d (whole %v), want %d or later", l.path(dir, "file"), len(data), g, whole, done)
		}
		if !killed {
			l.done = g // what came later is not there
		}
		return l.name + " generations", done
	}
}

func (l *replaceLoad) whole(key, content string) (bool, bool) {
	name, mine := l.under(key)
	if !mine || name != "file" {
		return false, false
	}
	_, whole := wholeGeneration(content)
	return whole || l.truncate, true // what lay truncated and quiet is a generation too
}
