package fusefs

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
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

// A fileLoad makes new files in different ways and closes them.
type fileLoad struct {
	plain
	mu   sync.Mutex // protects the fields below
	want map[string]string
	next int
}

func newFileLoad(name string) *fileLoad {
	return &fileLoad{plain: plain{name}, want: make(map[string]string)}
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

func (l *fileLoad) promise(bool) func(t *testing.T, dir string) (string, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	want := maps.Clone(l.want)
	return func(t *testing.T, dir string) (string, int) {
		for name, content := range want {
			if got, err := os.ReadFile(l.path(dir, name)); err != nil || string(got) != content {
				t.Errorf("%s: got %d bytes, %v, want %d", l.path(dir, name), len(got), err, len(content))
			}
		}
		return "closed files", len(want)
	}
}

func (l *fileLoad) whole(key, content string) (bool, bool) {
	name, mine := l.under(key)
	base := fileContent(strings.TrimSuffix(name, ".tmp"))
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

func (l *journalLoad) promise(bool) func(t *testing.T, dir string) (string, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	files := slices.Clone(l.files)
	return func(t *testing.T, dir string) (string, int) {
		all := 0
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
				t.Errorf("%s: got %d bytes, %v, want %d synced ones first", l.path(dir, strconv.Itoa(n)), len(got), err, want.Len())
			}
		}
		return "synced lines", all
	}
}

// A generation is content that tells which one it is, and whether all of it is there.
func generation(g int) string {
	line := fmt.Sprintf("generation %d\n", g)
	return strings.Repeat(line, 1+(g*7919)%9000)
}

// generationOf reads what generation wrote; ok is false if it is not whole.
func generationOf(content string) (g int, ok bool) {
	if _, err := fmt.Sscanf(content, "generation %d\n", &g); err != nil {
		return 0, false
	}
	return g, content == generation(g)
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
		if l.truncate {
			if os.WriteFile(path, []byte(generation(g)), 0o644) != nil {
				return
			}
		} else if os.WriteFile(path+".new", []byte(generation(g)), 0o644) != nil || os.Rename(path+".new", path) != nil {
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
		if errors.Is(err, os.ErrNotExist) && (!killed || done == 0) {
			return l.name + " generations", 0 // its name was never synced
		}
		g, whole := generationOf(string(data))
		next := generation(done + 1)
		switch {
		case err != nil:
			t.Errorf("%s: %v", l.path(dir, "file"), err)
		case killed && g >= done && whole:
		case !killed && whole:
		case l.truncate && killed && strings.HasPrefix(next, string(data)): // it was not closed
		case l.truncate && !killed && done == 0:
		default:
			t.Errorf("%s: got %d bytes of generation %d (whole %v), want %d or later", l.path(dir, "file"), len(data), g, whole, done)
		}
		return l.name + " generations", done
	}
}

func (l *replaceLoad) whole(key, content string) (bool, bool) {
	name, mine := l.under(key)
	if !mine || name != "file" {
		return false, false
	}
	_, whole := generationOf(content)
	return whole || l.truncate, true // what lay truncated and quiet is a generation too
}

// A gitLoad commits to a repository.
type gitLoad struct {
	plain
	mu   sync.Mutex // protects the fields below
	last string     // the last commit that was answered
	n    int
}

func newGitLoad(name string) *gitLoad { return &gitLoad{plain: plain{name}} }

func (l *gitLoad) git(dir string, args ...string) (string, error) {
	args = append([]string{"-C", filepath.Join(dir, l.name), "-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync", "-c", "gc.auto=0",
		"-c", "user.name=a", "-c", "user.email=a@b.c"}, args...)
	cmd := exec.Command("git", args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (l *gitLoad) run(dir string, stop <-chan struct{}) {
	if l.makeDir(dir) != nil {
		return
	}
	if _, err := l.git(dir, "init", "-q"); err != nil {
		return
	}
	for !stopped(stop) {
		l.mu.Lock()
		l.n++
		n := l.n
		l.mu.Unlock()
		for i := range 5 {
			if os.WriteFile(l.path(dir, fmt.Sprintf("f%d", (n+i)%40)), []byte(strings.Repeat(fmt.Sprint(n, i, "\n"), 200)), 0o644) != nil {
				return
			}
		}
		if _, err := l.git(dir, "add", "-A"); err != nil {
			return
		}
		if _, err := l.git(dir, "commit", "-q", "-m", "change"); err != nil {
			return
		}
		head, err := l.git(dir, "rev-parse", "HEAD")
		if err != nil {
			return
		}
		l.mu.Lock()
		l.last = head
		l.mu.Unlock()
	}
}

// repair removes the locks of a git that was interrupted.
func (l *gitLoad) repair(dir string) {
	for _, pattern := range []string{"*.lock", "refs/heads/*.lock"} {
		locks, _ := filepath.Glob(l.path(dir, ".git/"+pattern))
		for _, lock := range locks {
			os.Remove(lock)
		}
	}
}

func (l *gitLoad) promise(bool) func(t *testing.T, dir string) (string, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, n := l.last, l.n
	return func(t *testing.T, dir string) (string, int) {
		if last == "" {
			return "commits", 0
		}
		if out, err := l.git(dir, "fsck", "--full", "--strict"); err != nil || strings.Contains(out, "missing") || strings.Contains(out, "error") {
			t.Errorf("git fsck: %v: %s", err, out)
		}
		if out, err := l.git(dir, "merge-base", "--is-ancestor", last, "HEAD"); err != nil {
			t.Errorf("commit %s is lost: %v: %s", last, err, out)
		}
		return "commits", n
	}
}

// A sqliteLoad commits rows to a database, in a process of its own: it may map
// the files of the mount.
type sqliteLoad struct {
	plain
	mu   sync.Mutex // protects rows
	rows int
}

func newSQLiteLoad(mode string) *sqliteLoad { return &sqliteLoad{plain: plain{mode}} }

const sqliteWriter = `
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=10, isolation_level=None)
db.execute("pragma journal_mode=" + sys.argv[2])
db.execute("pragma synchronous=extra")
db.execute("create table if not exists t(n integer primary key, s text)")
n = db.execute("select coalesce(max(n), 0) from t").fetchone()[0]
while True:
    n += 1
    db.execute("begin")
    db.execute("insert into t values(?, ?)", (n, "x" * (n * 137 % 5000)))
    db.execute("commit")
    print(n, flush=True)
`

func (l *sqliteLoad) run(dir string, stop <-chan struct{}) {
	if l.makeDir(dir) != nil {
		return
	}
	cmd := exec.Command("python3", "-c", sqliteWriter, l.path(dir, "db"), l.name)
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return
	}
	ended := make(chan struct{})
	defer func() { cmd.Process.Kill(); cmd.Wait(); close(ended) }()
	go func() {
		select {
		case <-stop:
			cmd.Process.Kill()
		case <-ended:
		}
	}()
	for s := bufio.NewScanner(out); s.Scan(); {
		n, err := strconv.Atoi(s.Text())
		if err != nil {
			return
		}
		l.mu.Lock()
		l.rows = n
		l.mu.Unlock()
	}
}

func (l *sqliteLoad) promise(bool) func(t *testing.T, dir string) (string, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := l.rows
	return func(t *testing.T, dir string) (string, int) {
		if rows == 0 {
			return "rows (" + l.name + ")", 0
		}
		const query = "pragma integrity_check; select count(*) = max(n), max(n) from t"
		out, err := exec.Command("sqlite3", l.path(dir, "db"), query).CombinedOutput()
		var whole, last int
		if _, serr := fmt.Sscanf(string(out), "ok\n%d|%d", &whole, &last); err != nil || serr != nil || whole != 1 || last < rows {
			t.Errorf("database %s: got %q, %v, want ok and %d rows or more", l.name, out, err, rows)
		}
		return "rows (" + l.name + ")", rows
	}
}
