package fusefs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
)

// writerScript writes to a file as fast as it can until it is refused, and then
// tells how much, how much it wrote in a fifth of a second at most, and errno.
const writerScript = `
import os, sys, time
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
print("open", flush=True)
sys.stdin.readline()
b, n, t = bytes(1 << 20), 0, [time.monotonic_ns()]
try:
    while n < 16 << 30:
        n += os.write(f, b)
        t.append(time.monotonic_ns())
    e = 0
except OSError as x:
    e = x.errno
most, i = 0, 0
for j in range(len(t)):
    while t[j] - t[i] > 200_000_000:
        i += 1
    most = max(most, j - i + 1)
print(n, most << 20, e, flush=True)
for line in sys.stdin:
    try:
        exec(line)
        print("ok", flush=True)
    except OSError as x:
        print(x.errno, flush=True)
`

// A writer is a process with a file open for writing.
type writer struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

func startWriter(t *testing.T, path string) *writer {
	t.Helper()
	w := startProcess(t, writerScript, path)
	if got := w.line(); got != "open" {
		t.Fatalf("the writer said %q", got)
	}
	return w
}

// startProcess runs Python in a process group of its own until its input ends.
func startProcess(t *testing.T, python string, args ...string) *writer {
	t.Helper()
	cmd := exec.Command("python3", append([]string{"-c", python}, args...)...)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	must(t, errors.Join(err1, err2, cmd.Start()))
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return &writer{t, in, bufio.NewReader(out)}
}

func (w *writer) line() string {
	w.t.Helper()
	line, err := w.out.ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// do runs one line of Python and returns its errno, 0 for none.
func (w *writer) do(python string) syscall.Errno {
	w.t.Helper()
	fmt.Fprintln(w.in, python)
	var errno int
	if line := w.line(); line != "ok" {
		if _, err := fmt.Sscan(line, &errno); err != nil {
			w.t.Fatal(line)
		}
	}
	return syscall.Errno(errno)
}

// storm lets the writer go and returns what it wrote until it was refused, and the
// most that it wrote in any fifth of a second.
func (w *writer) storm() (written, fifth int64, errno syscall.Errno) {
	w.t.Helper()
	fmt.Fprintln(w.in)
	var e int
	if _, err := fmt.Sscan(w.line(), &written, &fifth, &e); err != nil {
		w.t.Fatal(err)
	}
	return written, fifth, syscall.Errno(e)
}

// limit changes the limit of the tree under its writers.
func (r *rig) limit(bytes int64) {
	r.db.SetLimit(index.RootIno, index.Usage{Bytes: bytes}, "", index.Usage{})
}

// TestOvershoot lets writers that were opened when there was much room write past
// the limit. Each is stopped after at most a fifth of a second, goes on when
// there is room again, and cannot trick the tree into more.
func TestOvershoot(t *testing.T) {
	r := newRig(t, withQuota(1<<40, 0))
	if !r.Passthrough() || !r.cache.Freezes() {
		t.Skip("the kernel writes to no files here, or cannot be stopped from it")
	}
	w := startWriter(t, r.path("f"))
	const limit = 64 << 20
	r.limit(limit)
	written, fifth, errno := w.storm()
	if errno != syscall.EPERM {
		t.Fatalf("the writer ended with %v after %d bytes, want EPERM", errno, written)
	}
	if written-limit > fifth {
		t.Errorf("%d MiB went past the limit, want at most the %d MiB of a fifth of a second", (written-limit)>>20, fifth>>20)
	}
	t.Logf("%d MiB went past the limit, %.0f ms of writing", (written-limit)>>20, float64(written-limit)/float64(fifth)*200)

	// New writers are mediated and refused; what makes room is not.
	if err := os.WriteFile(r.path("g"), []byte("x"), 0o644); !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("another writer: got %v, want EDQUOT", err)
	}
	if errno := w.do("os.ftruncate(f, os.fstat(f).st_size + 1)"); errno != syscall.EDQUOT {
		t.Errorf("growing by truncate: got %v, want EDQUOT", errno)
	}
	if errno := w.do("os.utime(f, ns=(1, 1)); os.fchmod(f, 0o600)"); errno != 0 {
		t.Errorf("utime and chmod: %v", errno)
	}
	if errno := w.do("os.write(f, b)"); errno != syscall.EPERM {
		t.Errorf("writing after utime: got %v, want EPERM", errno)
	}
	if errno := w.do(fmt.Sprintf("os.ftruncate(f, %d); os.pwrite(f, b, 0)", limit/2)); errno != 0 {
		t.Errorf("writing in the room that truncate made: %v", errno)
	}
	if errno := w.do("os.close(f)"); errno != 0 {
		t.Error(errno)
	}
	r.checkUsage()
	must(t, os.Remove(r.path("f")))
	r.checkUsage()
}

// TestFrozenFileIsFreed removes a frozen file, and closes one, and finds neither
// immutable afterwards, nor after the death of the process.
func TestFrozenFileIsFreed(t *testing.T) {
	r := newRig(t, withQuota(1<<40, 0))
	if !r.Passthrough() || !r.cache.Freezes() {
		t.Skip("the kernel writes to no files here, or cannot be stopped from it")
	}
	a, b := startWriter(t, r.path("a")), startWriter(t, r.path("b"))
	r.limit(16 << 20)
	if _, _, errno := a.storm(); errno != syscall.EPERM {
		t.Fatalf("got %v, want EPERM", errno)
	}
	b.storm()
	must(t, os.Remove(r.path("a")))
	if errno := a.do("os.write(f, b)"); errno != syscall.EPERM {
		t.Errorf("writing to an unlinked file: got %v, want EPERM: it counts until it is closed", errno)
	}
	a.do("os.close(f)")
	b.do("os.close(f)")
	eventually(t, "no file is frozen", func() bool { return len(r.freezer.all()) == 0 })
	must(t, os.Remove(r.path("b")))
	r.checkUsage()
	eventually(t, "no content is left", func() bool {
		files, err := filepath.Glob(filepath.Join(r.state, "cache", "??", "*"))
		return err == nil && len(files) == 0
	})
}

// TestFrozenFileAfterKill starts again after the process died while files were
// frozen, one of them without a name.
func TestFrozenFileAfterKill(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "mnt")
	for _, d := range []string{dir, filepath.Join(base, "state")} {
		must(t, os.Mkdir(d, 0o755))
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	s := serve(t, base)
	var open []*os.File
	for _, name := range []string{"a", "b"} {
		f, err := os.Create(filepath.Join(dir, name))
		must(t, err)
		open = append(open, f)
		_, err = f.WriteString(name)
		must(t, err)
	}
	must(t, os.Remove(filepath.Join(dir, "b")))
	s.kill()
	for _, f := range open { // as those that die with their machine
		f.Close()
	}
	contents := func() []string {
		files, err := filepath.Glob(filepath.Join(base, "state", "cache", "??", "*"))
		must(t, err)
		return files
	}
	if n := len(contents()); n != 2 {
		t.Fatalf("%d content files are left, want 2", n)
	}
	for _, file := range contents() {
		if out, err := exec.Command("chattr", "+i", file).CombinedOutput(); err != nil {
			t.Skipf("no file can be frozen here: %v: %s", err, out)
		}
	}
	s = serve(t, base)
	eventually(t, "what has no name is removed", func() bool { return len(contents()) == 1 })
	f, err := os.OpenFile(filepath.Join(dir, "a"), os.O_RDWR|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString("more")
	must(t, errors.Join(err, f.Close()))
	if got, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(got) != "amore" {
		t.Errorf("got %q, %v", got, err)
	}
	must(t, s.stdin.Close())
	must(t, s.cmd.Wait())
}
