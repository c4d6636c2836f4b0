//go:build bench

package e2e

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	out     = flag.String("out", "", "file to write the figures to, as JSON")
	fsbench = flag.String("fsbench", "", "path of fsbench.sh; empty leaves its workloads out")
	scale   = flag.String("scale", "0.2", "SCALE of fsbench.sh")
)

// A figure is one measured value, or a ratio of two taken in the same run.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

type figures []figure

func (f *figures) add(name string, value float64, unit string) {
	*f = append(*f, figure{name, value, unit})
	fmt.Printf("%-44s %12.3f %s\n", name, value, unit)
}

// spread adds the median and the 99th percentile of some durations.
func (f *figures) spread(name string, all []time.Duration) {
	slices.Sort(all)
	f.add(name+" p50", ms(all[len(all)/2]), "ms")
	f.add(name+" p99", ms(all[min(len(all)*99/100, len(all)-1)]), "ms")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// TestBench measures what a user waits for and prints it.
func TestBench(t *testing.T) {
	var f figures
	b := start(t)
	toolCalls(t, b, &f)
	events(t, b, &f)
	if *fsbench != "" {
		fileSystem(t, &f)
	}
	if *out != "" {
		text, err := json.MarshalIndent(f, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(*out, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// toolCalls takes the first call of new chats beside `docker run` of the same
// image in turn, and calls on a running machine.
func toolCalls(t *testing.T, b *berth, f *figures) {
	const rounds = 10
	var first, docker, running []time.Duration
	for i := range rounds {
		chat := fmt.Sprint("bench", i)
		b.call(t, b.Member, "PUT", "/v1/chats/"+chat, map[string]any{}).want(t, 200, nil)
		eventually(t, "a warm machine", time.Minute, func() bool {
			var s struct{ Machines struct{ Warm int } }
			b.status(t, &s)
			return s.Machines.Warm > 0
		})
		first = append(first, timed(func() { b.sh(t, b.Member, chat, "true") }))
		docker = append(docker, timed(func() {
			if text, err := exec.Command("docker", "run", "--rm", "--network=none", "--entrypoint", "/bin/true", "berth-machine:core").CombinedOutput(); err != nil {
				t.Fatalf("docker run: %v\n%s", err, text)
			}
		}))
	}
	for range 100 {
		running = append(running, timed(func() { b.sh(t, b.Member, "bench0", "true") }))
	}
	f.spread("tool call, new chat, warm pool", first)
	f.spread("docker run --rm IMAGE true", docker)
	f.add("new chat / docker run", ms(first[len(first)/2])/ms(docker[len(docker)/2]), "ratio of p50")
	f.spread("tool call, running machine", running)
}

func timed(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

// events takes the time from close() in the machine to the event at a client.
// Machine and client share the host's clock.
func events(t *testing.T, b *berth, f *figures) {
	req, err := http.NewRequest("GET", b.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.Member)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	arrived := make(chan map[string]time.Time)
	const count = 100
	go func() {
		seen := make(map[string]time.Time)
		for s := bufio.NewScanner(res.Body); s.Scan() && len(seen) < count; {
			now := time.Now()
			for i := range count {
				if name := fmt.Sprintf("event-%03d", i); strings.Contains(s.Text(), name) && seen[name].IsZero() {
					seen[name] = now
				}
			}
		}
		arrived <- seen
	}()
	text := b.sh(t, b.Member, "bench0", `python3 - <<'PY'
import time
for i in range(100):
    f = open("event-%03d" % i, "w"); f.write("x"); f.close()
    print("event-%03d" % i, time.time_ns()); time.sleep(0.05)
PY`)
	select {
	case seen := <-arrived:
		var late []time.Duration
		for line := range strings.Lines(text) {
			name, ns, _ := strings.Cut(strings.TrimSpace(line), " ")
			closed, err := strconv.ParseInt(ns, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			late = append(late, seen[name].Sub(time.Unix(0, closed)))
		}
		f.spread("close() to event", late)
	case <-time.After(time.Minute):
		t.Fatal("not all events arrived within a minute")
	}
}

// fileSystem runs fsbench.sh on a plain directory and on a mount.
func fileSystem(t *testing.T, f *figures) {
	dir := stateDir(t)
	plain, mnt := filepath.Join(filepath.Dir(dir), "plain"), filepath.Join(filepath.Dir(dir), "mnt")
	for _, d := range []string{plain, mnt} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program(t), "mount", "--state", dir, mnt)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("berth mount: %v", err)
		}
	}()
	eventually(t, "berth mount serves", time.Minute, func() bool {
		var here, above syscall.Stat_t
		return syscall.Stat(mnt, &here) == nil && syscall.Stat(filepath.Dir(mnt), &above) == nil && here.Dev != above.Dev
	})
	base, here := runFsbench(t, plain), runFsbench(t, mnt)
	for _, name := range base.order {
		value, unit := here.value[name], base.unit[name]
		f.add("plain "+name, base.value[name], unit)
		f.add("berth "+name, value, unit)
		if base.value[name] > 0 && value > 0 {
			f.add("ratio "+name, value/base.value[name], "berth / plain")
		}
	}
	for _, line := range here.failed {
		fmt.Printf("berth %s", line) // what a mount does not have; tests say what it must have
	}
}

type benchRun struct {
	order  []string
	value  map[string]float64
	unit   map[string]string
	failed []string
}

func runFsbench(t *testing.T, dir string) benchRun {
	cmd := exec.Command(*fsbench, dir)
	cmd.Env = append(os.Environ(), "SCALE="+*scale, "SKIP=cold,drain")
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("fsbench: %v", err)
	}
	r := benchRun{value: map[string]float64{}, unit: map[string]string{}}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		if words[1] == "FAIL" || words[1] == "TIMEOUT" {
			r.failed = append(r.failed, line)
		} else if v, err := strconv.ParseFloat(words[1], 64); err == nil && len(words) > 2 {
			r.order = append(r.order, words[0])
			r.value[words[0]], r.unit[words[0]] = v, words[2]
		}
	}
	return r
}
