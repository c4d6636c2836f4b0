package fusefs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWritersOutliveServer kills the server under processes that have files open
// for writing and mapped. The kernel goes on writing to the content files for
// them: what they write is seen and kept as if nothing had happened.
func TestWritersOutliveServer(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "mnt")
	for _, d := range []string{dir, filepath.Join(base, "state")} {
		must(t, os.Mkdir(d, 0o755))
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	s := serve(t, base)
	writer := exec.Command("python3", "-uc", `
import mmap, os, sys
os.chdir(sys.argv[1])
log = open("log", "wb", buffering=0); log.write(b"1")
m = open("map", "wb+"); m.write(b"1" * 8192); m.flush()
mapped = mmap.mmap(m.fileno(), 0); m.close()
os.rename("log", "moved")
print("ready")
for line in sys.stdin:
    n = line.strip().encode()
    try:
        log.write(n); mapped[0:1] = n; mapped[8191:8192] = n
        print("written")
    except OSError as e:
        print(e)
`, dir)
	in, err := writer.StdinPipe()
	must(t, err)
	out, err := writer.StdoutPipe()
	must(t, err)
	writer.Stderr = t.Output()
	must(t, writer.Start())
	t.Cleanup(func() { writer.Process.Kill(); writer.Wait() })
	answers := bufio.NewScanner(out)
	expect := func(want string) {
		t.Helper()
		if answers.Scan(); answers.Text() != want {
			t.Fatalf("the writer said %q, want %q", answers.Text(), want)
		}
	}
	expect("ready")
	check := func(when, digits string) {
		t.Helper()
		last := digits[len(digits)-1:]
		eventually(t, when+" the log is "+digits, func() bool {
			got, err := os.ReadFile(filepath.Join(dir, "moved"))
			st, serr := os.Stat(filepath.Join(dir, "moved"))
			return err == nil && serr == nil && string(got) == digits && st.Size() == int64(len(digits))
		})
		got, err := os.ReadFile(filepath.Join(dir, "map"))
		if err != nil || string(got) != last+strings.Repeat("1", 8190)+last {
			t.Errorf("%s the mapped file has %d bytes, %v", when, len(got), err)
		}
	}
	digits := "1"
	for i := range 3 {
		s.kill()
		fmt.Fprintln(in, 2+2*i)
		expect("written")
		digits += fmt.Sprint(2 + 2*i)
		s = serve(t, base)
		check("after a kill", digits)
		fmt.Fprintln(in, 3+2*i)
		expect("written")
		digits += fmt.Sprint(3 + 2*i)
		check("written after a kill", digits)
	}
	must(t, in.Close())
	must(t, writer.Wait())
	check("when the writer ended", digits)
	must(t, s.stdin.Close())
	must(t, s.cmd.Wait())
	s = serve(t, base)
	check("after a stop", digits)
	must(t, s.stdin.Close())
	must(t, s.cmd.Wait())
}
