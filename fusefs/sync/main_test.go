package sync

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails when work goes on after the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	left := leftovers()
	for end := time.Now().Add(5 * time.Second); left != "" && time.Now().Before(end); left = leftovers() {
		time.Sleep(10 * time.Millisecond)
	}
	if left != "" {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leftovers returns the stacks that a Syncer is on.
func leftovers() string {
	buf := make([]byte, 1<<20)
	var out []string
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "sync.(*Syncer).") {
			out = append(out, stack)
		}
	}
	return strings.Join(out, "\n\n")
}
