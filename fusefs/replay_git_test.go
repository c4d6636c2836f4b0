package fusefs

import "fmt"

// gitReplays are of git, which maps, appends, links and renames as it goes.
func gitReplays() []replay {
	return []replay{
		{"s3fs#1152", `
			git init -q $T/origin; cd $T/origin; for i in $(seq 60); do echo $i > f$i; done
			git add .; git commit -qm one; cd "$OLDPWD"
			git clone -q $T/origin clone; cd clone
			touch e; git add e; test "$(git status --porcelain)" = "A  e"`},
		{"s3fs#839", fmt.Sprintf(`
			git init -q $T/origin; cd $T/origin
			for i in $(seq %d); do random 1M > blob$i; done
			git add .; git commit -qm one; cd "$OLDPWD"
			git clone -q --no-local $T/origin clone; cd clone; git fsck --strict`, sized(6, 550))},
		{"seaweedfs#3351", `
			git init -q .; touch a; git add a; git commit -qm t; git log --oneline | grep -q t`},
		{"seaweedfs#1373", fmt.Sprintf(`
			git init -q --bare $T/origin; git clone -q $T/origin $T/else 2>/dev/null; git clone -q $T/origin here 2>/dev/null
			for i in $(seq %d); do
				(cd $T/else; echo $i >> f; echo $i > f$i; git add .; git commit -qm $i; git push -q origin HEAD)
				(cd here; git pull -q; git fsck --strict 2>&1 | { ! grep -v notice; }; test "$(tail -n 1 f)" = $i)
			done`, sized(4, 100))},
		{"gcsfuse#1016", fmt.Sprintf(signalled, sized(300, 5000))},
		{"securefs#58", `
			git init -q .; echo 1 > a; git add a; git commit -qm one; echo 2 > a; git commit -qam two
			test "$(wc -l < .git/logs/HEAD)" = 2`},
	}
}

// signalled makes, writes, renames and reads files while a timer's signal comes
// every few milliseconds, with the C library's own calls, which do not try again.
const signalled = `
python3 - <<'END'
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
hits = 0
def alarm(*_):
    global hits
    hits += 1
signal.signal(signal.SIGALRM, alarm); signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, .005, .003)
def call(name, *args):
    n = getattr(libc, name)(*args)
    if n < 0: raise OSError(ctypes.get_errno(), name)
    return n
for i in range(%d):
    name = b"f%%d" %% (i %% 50)
    fd = call("open", name + b".tmp", os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o644)
    assert call("write", fd, b"x" * 5000, 5000) == 5000
    if i %% 25 == 0: call("fsync", fd)
    call("close", fd)
    call("rename", name + b".tmp", name)
    buf = ctypes.create_string_buffer(6000)
    fd = call("open", name, os.O_RDONLY)
    assert call("read", fd, buf, 6000) == 5000
    call("close", fd)
signal.setitimer(signal.ITIMER_REAL, 0)
assert hits > 3, hits
END`
