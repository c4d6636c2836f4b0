//go:build bench

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The groups of fsbench.sh that leave the caches as they are, in its order.
const warmGroups = "sem,fsx,seq,small,firstbyte,git,npm,tar,sqlite,append,rename,python"

// A place is a directory whose file system is measured, and the process that
// serves it.
type place struct {
	name  string
	dir   string
	pid   int          // 0 for the kernel
	quiet func() error // waits until nothing goes on behind
	best  map[string]float64
}

// fileSystem runs fsbench.sh on a plain directory, on go-fuse's loopback (which
// is what FUSE itself costs in Go) and on a mount of berth, group by group in
// turn, and prints what each takes and how many times longer berth does.
func fileSystem(t *testing.T, f *figures) {
	dir := filepath.Dir(stateDir(t))
	idle := func() error { return nil }
	plain := &place{name: "ext4", dir: subdir(t, dir, "plain"), quiet: idle}
	loop := startLoopback(t, dir)
	here := startMount(t, dir)
	places := []*place{plain, loop, here}
	groups := warmGroups
	if *only != "" {
		groups = *only
	}
	var names []string
	unit := make(map[string]string)
	for group := range strings.SplitSeq(groups, ",") {
		for range *rounds {
			for _, p := range places {
				for _, line := range p.measure(t, group) {
					if _, known := unit[line.Name]; !known {
						names = append(names, line.Name)
					}
					unit[line.Name] = line.Unit
					p.keep(line)
				}
			}
		}
	}
	fmt.Printf("%-28s %-7s %10s %10s %10s %8s %8s\n", "", "", plain.name, loop.name, here.name, "/ext4", "/loop")
	for _, name := range names {
		a, b, c := plain.best[name], loop.best[name], here.best[name]
		for _, p := range places {
			*f = append(*f, figure{p.name + " " + name, p.best[name], unit[name]})
		}
		byPlain, byLoop := slower(unit[name], c, a), slower(unit[name], c, b)
		*f = append(*f, figure{"slower " + name, byPlain, "berth / ext4"}, figure{"slower " + name, byLoop, "berth / loopback"})
		fmt.Printf("%-28s %-7s %10.4g %10.4g %10.4g %8.2f %8.2f\n", name, unit[name], a, b, c, byPlain, byLoop)
	}
}

// measure runs one group in a place and says what it took, the processor time
// of the serving process included.
func (p *place) measure(t *testing.T, group string) []figure {
	before := cpuTime(t, p.pid)
	cmd := exec.Command(*fsbench, p.dir)
	cmd.Env = append(os.Environ(), "SCALE="+*scale, "ONLY="+group)
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("fsbench %s on %s: %v", group, p.name, err)
	}
	var lines []figure
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		if words[1] == "FAIL" || words[1] == "TIMEOUT" {
			fmt.Printf("%s %s", p.name, line) // what a mount does not have; tests say what it must have
		} else if v, err := strconv.ParseFloat(words[1], 64); err == nil && len(words) > 2 {
			lines = append(lines, figure{words[0], v, words[2]})
		}
	}
	if err := p.quiet(); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	return append(lines, figure{"cpu of server, " + group, cpuTime(t, p.pid) - before, "s"})
}

// keep notes the better of what was measured.
func (p *place) keep(f figure) {
	if p.best == nil {
		p.best = make(map[string]float64)
	}
	old, ok := p.best[f.Name]
	if !ok || slower(f.Unit, old, f.Value) > 1 {
		p.best[f.Name] = f.Value
	}
}

// slower is how many times longer a takes than b, 0 when that cannot be said.
func slower(unit string, a, b float64) float64 {
	if unit == "MiB/s" || unit == "iops" {
		a, b = b, a
	}
	if b == 0 {
		return 0
	}
	return a / b
}

// cpuTime returns the seconds of processor that a process and its children that
// have ended took.
func cpuTime(t *testing.T, pid int) float64 {
	if pid == 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	ticks := 0
	for _, s := range fields[11:15] { // utime, stime and those of children
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return float64(ticks) / 100
}

func subdir(t *testing.T, dir, name string) string {
	d := filepath.Join(dir, name)
	if err := os.Mkdir(d, 0o755); err != nil {
		t.Fatal(err)
	}
	return d
}

// startLoopback builds and mounts go-fuse's example, which serves reads and
// writes by passthrough.
func startLoopback(t *testing.T, dir string) *place {
	bin := filepath.Join(dir, "loopback")
	if text, err := exec.Command("go", "build", "-o", bin, "github.com/hanwen/go-fuse/v2/example/loopback").CombinedOutput(); err != nil {
		t.Fatalf("build loopback: %v\n%s", err, text)
	}
	p := &place{name: "loopback", dir: subdir(t, dir, "loop"), quiet: func() error { return nil }}
	p.serve(t, exec.Command(bin, "-q", "-allow-other", "-directmount", p.dir, subdir(t, dir, "back")))
	return p
}

// startMount mounts a fresh bucket of the embedded store.
func startMount(t *testing.T, dir string) *place {
	p := &place{name: "berth", dir: subdir(t, dir, "mnt")}
	state := filepath.Join(dir, "s")
	p.quiet = func() error {
		if text, err := exec.Command(program(t), "flush", "--state", state).CombinedOutput(); err != nil {
			return fmt.Errorf("berth flush: %v\n%s", err, text)
		}
		return nil
	}
	cmd := exec.Command(program(t), "mount", "--state", state, p.dir)
	p.serve(t, cmd)
	return p
}

// serve starts what serves a place, and ends it with the test.
func (p *place) serve(t *testing.T, cmd *exec.Cmd) {
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			fmt.Println(s.Text())
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	})
	p.pid = cmd.Process.Pid
	eventually(t, p.name+" serves", time.Minute, func() bool {
		var at, above syscall.Stat_t
		return syscall.Stat(p.dir, &at) == nil && syscall.Stat(filepath.Dir(p.dir), &above) == nil && at.Dev != above.Dev
	})
}
