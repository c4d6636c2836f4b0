package fusefs

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestTools runs what people and agents run. Each script ends in an error if the
// file system did not do its part.
func TestTools(t *testing.T) {
	scripts := map[string]string{
		"git": `
			git init -q repo && cd repo
			git config user.email a@b; git config user.name a; git config commit.gpgsign false
			for i in $(seq 60); do mkdir -p d$i; echo $i > d$i/f; done
			git add -A; git commit -qm one
			git branch a; git branch -D a -q; git branch a/b
			echo changed > d1/f; git commit -qam two
			git gc -q; git fsck --strict
			git clone -q . ../clone && cd ../clone
			test "$(git log --oneline | wc -l)" = 2
			test -z "$(git status --porcelain)"
			touch e; git add e; test "$(git status --porcelain)" = "A  e"`,
		"sqlite": `
			for mode in delete wal; do
				sqlite3 $mode.db "pragma journal_mode=$mode; create table t(n)" >/dev/null
				for w in 1 2 3; do
					(for i in $(seq 15); do sqlite3 -cmd ".timeout 20000" $mode.db "insert into t values ($i)"; done) &
				done
				wait
				test "$(sqlite3 $mode.db 'select count(*) from t')" = 45
				test "$(sqlite3 $mode.db 'pragma integrity_check')" = ok
			done`,
		"tar": `
			mkdir src; for i in $(seq 50); do mkdir -p src/$i; echo $i > src/$i/f; ln -s f src/$i/l; done
			ln src/1/f src/1/hard; chmod 600 src/2/f; touch -d 2020-02-02T02:02:02.123456789 src/3/f
			tar cf a.tar src; mkdir out; tar xf a.tar -C out
			diff -r --no-dereference src out/src
			test "$(stat -c %Y%a%h out/src/*/f)" = "$(stat -c %Y%a%h src/*/f)"
			test -z "$(rsync -ai src/ out/src/ | grep -v '/$')"
			rm -rf out; test ! -e out`,
		"npm": `
			# What npm does: unpack beside, rename into place, replace what was there.
			for round in 1 2 3; do
				for p in $(seq 20); do
					mkdir -p node_modules/.p$p-tmp/lib
					for f in 1 2 3; do echo $round > node_modules/.p$p-tmp/lib/$f.js; done
					test $round = 1 || mv node_modules/p$p node_modules/.p$p-old
					mv node_modules/.p$p-tmp node_modules/p$p
					rm -rf node_modules/.p$p-old
				done
			done
			test "$(cat node_modules/*/lib/*.js | sort -u)" = 3
			test "$(ls -A node_modules | wc -l)" = 20`,
		"editors": `
			echo one > f
			for i in $(seq 100); do echo $i > .f.swp; mv .f.swp f; test "$(cat f)" = $i; done
			for i in $(seq 200); do echo $i > f; done; test "$(cat f)" = 200
			for i in $(seq 300); do mv f g; stat g > /dev/null; mv g f; done
			(rm -f f; echo foo) > f; test ! -e f
			echo a > log; for i in $(seq 50); do echo $i >> log; done; test "$(wc -l < log)" = 51`,
		"removal": `
			mkdir -p x/y; for i in $(seq 300); do echo > x/y/$i; done
			for i in 1 2 3 4; do rm -rf x & done; wait; test ! -e x
			mkdir old; echo 1 > old/f; mv old new; rm -rf new`,
	}
	r := newRig(t)
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			dir := r.path(name)
			must(t, os.Mkdir(dir, 0o755))
			cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	r.flush()
	// The bucket has exactly what the mount has.
	want := treeKeys(t, r.dir)
	got := r.keys()
	if len(got) != len(want) {
		t.Errorf("the bucket has %d keys, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("key %d: got %q, want %q", i, got[i], want[i])
		}
		if strings.HasSuffix(got[i], "/") {
			continue
		}
		if st, err := os.Lstat(r.path(want[i])); err != nil || !st.Mode().IsRegular() {
			continue
		}
		here, err := os.ReadFile(r.path(want[i]))
		must(t, err)
		if there, err := r.object(got[i]); err != nil || there != string(here) {
			t.Errorf("%s: the bucket has %d bytes, %v, want %d", got[i], len(there), err, len(here))
		}
	}
}

// Locks are the kernel's and hold between processes.
func TestLocks(t *testing.T) {
	r := newRig(t)
	cmd := exec.Command("bash", "-euc", `
		exec 9> lock; flock 9
		! flock -n lock true
		python3 - <<'END'
import fcntl, os
f = open("record", "w"); fcntl.lockf(f, fcntl.LOCK_EX)
if os.fork() == 0:
    try:
        fcntl.lockf(open("record", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os._exit(0)
    os._exit(1)
assert os.wait()[1] == 0, "the lock did not hold"
END`)
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
