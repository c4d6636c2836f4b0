package fusefs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

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
	if _, err := l.git(dir, "init", "-q"); err != nil || syncTree(l.path(dir, ".git")) != nil {
		return // init does not sync what it makes
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
		if err != nil || syncTree(l.path(dir, ".git/refs")) != nil {
			return // git syncs what it writes, not that it renamed it
		}
		l.mu.Lock()
		l.last = head
		l.mu.Unlock()
	}
}

// repair removes the locks of a git that was interrupted, or what init has left of
// a repository that it did not finish.
func (l *gitLoad) repair(dir string) {
	if l.last == "" {
		os.RemoveAll(filepath.Join(dir, l.name))
	}
	for _, pattern := range []string{"*.lock", "refs/heads/*.lock"} {
		locks, _ := filepath.Glob(l.path(dir, ".git/"+pattern))
		for _, lock := range locks {
			os.Remove(lock)
		}
	}
}

func (l *gitLoad) promise(killed bool) func(t *testing.T, dir string) (string, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, n := l.last, l.n
	return func(t *testing.T, dir string) (string, int) {
		if !killed {
			l.last = last
		}
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

func (l *sqliteLoad) promise(killed bool) func(t *testing.T, dir string) (string, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := l.rows
	return func(t *testing.T, dir string) (string, int) {
		if !killed {
			l.rows = rows
		}
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
