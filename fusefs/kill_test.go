package fusefs

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/fusefs/object/mem"
)

// serveForTest serves a mount below a directory until it is killed. Nothing
// reaches its store, so that all has to come from the state directory.
func serveForTest(base string) int {
	store := new(mem.Store)
	f, err := Open(context.Background(), Options{StateDir: filepath.Join(base, "state"), Mountpoint: filepath.Join(base, "mnt"),
		WholeBucket: true, Store: store, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := f.usageError(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin) // until the test ends it, or ends itself
	if err := f.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A served is a server in a process of its own.
type served struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func serve(t *testing.T, base string) *served {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), serveEnv+"="+base)
	cmd.Stderr = t.Output()
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	s := &served{cmd, stdin}
	t.Cleanup(func() { s.kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("the server said %q, %v", line, err)
	}
	return s
}

// kill ends the server as a crash would; it can be repeated.
func (s *served) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

var kills = flag.Int("kills", 4, "how often TestKill kills the server")

// TestKill kills the server while files are being written, several times. Every
// file whose close returned is there afterwards, whole; every file is all of
// one generation or was open at the kill.
func TestKill(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "mnt")
	for _, d := range []string{dir, filepath.Join(base, "state")} {
		must(t, os.Mkdir(d, 0o755))
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	want := make(map[string]string) // what close or rename returned for
	for round := range *kills {
		s := serve(t, base)
		checkFiles(t, dir, want)
		var mu sync.Mutex
		var writers sync.WaitGroup
		enough := make(chan struct{})
		reached := sync.OnceFunc(func() { close(enough) })
		for w := range 4 {
			writers.Add(1)
			go func() {
				defer writers.Done()
				writeUntilKilled(dir, fmt.Sprintf("r%d-w%d", round, w), func(removed, name, content string) {
					mu.Lock()
					defer mu.Unlock()
					delete(want, removed)
					want[name] = content
					if len(want) >= 150*(round+1) {
						reached()
					}
				})
			}()
		}
		select {
		case <-enough:
		case <-time.After(30 * time.Second):
			t.Fatal("the writers are too slow")
		}
		s.kill()
		writers.Wait()
	}
	s := serve(t, base)
	checkFiles(t, dir, want)
	must(t, s.stdin.Close())
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the end: %v", err)
	}
}

// writeUntilKilled makes files in different ways, and tells of each when it must
// not be lost any more.
func writeUntilKilled(dir, prefix string, done func(removed, name, content string)) {
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		content := strings.Repeat(name+"\n", 1+i%700)
		write := name
		if i%3 == 1 {
			write += ".tmp"
		}
		if os.WriteFile(filepath.Join(dir, write), []byte(content), 0o644) != nil {
			return
		}
		if i%3 == 2 {
			content += "more"
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return
			}
			_, err = f.WriteString("more")
			if errors.Join(err, f.Close()) != nil {
				return
			}
		}
		if write != name && os.Rename(filepath.Join(dir, write), filepath.Join(dir, name)) != nil {
			return
		}
		done("", name, content)
	}
}

func checkFiles(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	lost := 0
	for name, content := range want {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
			if lost++; lost < 5 {
				t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, len(content))
			}
		}
	}
	if lost > 0 {
		t.Fatalf("%d of %d files were lost", lost, len(want))
	}
}
