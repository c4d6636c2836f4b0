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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	out     = flag.String("out", "", "file to write the figures to, as JSON")
	fsbench = flag.String("fsbench", "", "path of fsbench.sh; empty leaves its workloads out")
	scale   = flag.String("scale", "0.2", "SCALE of fsbench.sh")
	only    = flag.String("only", "", "groups of fsbench.sh, with commas: measure nothing else")
	rounds  = flag.Int("rounds", 1, "how often each group of fsbench.sh is run; the best counts")
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
	if *only == "" {
		b := start(t)
		toolCalls(t, b, &f)
		events(t, b, &f)
	}
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
	const calls = 10
	var first, docker, running []time.Duration
	for i := range calls {
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
				// The event of what was written, not that of the file's creation.
				if name := fmt.Sprintf("event-%03d", i); strings.Contains(s.Text(), name+`","op":"write"`) && seen[name].IsZero() {
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
