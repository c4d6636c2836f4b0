package fusefs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth"
	"berth/fusefs/object/embedded/embeddedtest"
	"berth/fusefs/object/s3"
)

// askedEnv names the store of a server that answers questions: see serveAsked.
const askedEnv = "BERTH_TEST_ASKED_STORE"

// serveAsked serves a mount of a bucket until its input ends or it is killed.
// Each line of its input is a question about the history, with one line of answer.
func serveAsked(base, url string) int {
	store, err := s3.New(s3.Options{URL: url, Bucket: embeddedtest.Bucket, AccessKey: embeddedtest.AccessKey, SecretKey: embeddedtest.SecretKey})
	var f *FS
	if err == nil {
		f, err = Open(context.Background(), Options{StateDir: filepath.Join(base, "state"), Mountpoint: filepath.Join(base, "mnt"),
			WholeBucket: true, Store: store, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		answer, err := f.ask(strings.Fields(in.Text()))
		if err != nil {
			answer = "cannot: " + err.Error()
		}
		fmt.Println(strings.ReplaceAll(answer, "\n", " "))
	}
	if err := f.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (f *FS) ask(words []string) (string, error) {
	ctx := context.Background()
	switch words[0] {
	case "checkpoint":
		n, err := f.Checkpoint(ctx, []berth.Tree{{}})
		return fmt.Sprint(n), err
	case "before":
		n, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil {
			return "", err
		}
		r, _, err := f.Before(ctx, berth.Tree{}, words[2], n)
		if err != nil {
			return "", err
		}
		defer r.Close()
		data, err := io.ReadAll(r)
		return string(data), err
	case "versions":
		versions, err := f.Versions(ctx, berth.Tree{}, words[1])
		var out []string
		for _, v := range versions {
			r, _, err := f.OpenVersion(ctx, berth.Tree{}, words[1], v.ID)
			if err != nil {
				return "", err
			}
			data, err := io.ReadAll(r)
			r.Close()
			if err != nil {
				return "", err
			}
			out = append(out, string(data))
		}
		return strings.Join(out, " "), err
	case "keep":
		return "done", errors.Join(f.Flush(ctx, ""), f.keepSaved(ctx, 0))
	}
	return "", errors.ErrUnsupported
}

// An asked is a server in a process of its own that answers questions.
type asked struct {
	*served
	in  io.Writer
	out *bufio.Reader
}

func serveAndAsk(t *testing.T, base, url string) *asked {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), serveEnv+"="+base, askedEnv+"="+url)
	cmd.Stderr = t.Output()
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	s := &asked{&served{cmd, stdin}, stdin, bufio.NewReader(stdout)}
	t.Cleanup(func() { s.kill() })
	if line, err := s.out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the server said %q, %v", line, err)
	}
	return s
}

func (s *asked) ask(t *testing.T, format string, args ...any) string {
	t.Helper()
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		t.Fatal(err)
	}
	line, err := s.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// TestKillKeepsVersions kills the server while what was pinned by a checkpoint is
// overwritten, replaced and removed, here and in the bucket. Afterwards every
// pinned content is there, by its checkpoint and in the history, once, and the
// files are what was written last.
func TestKillKeepsVersions(t *testing.T) {
	url := embeddedtest.Start(t, t.TempDir()).URL
	base := t.TempDir()
	dir := filepath.Join(base, "mnt")
	for _, d := range []string{dir, filepath.Join(base, "state")} {
		must(t, os.Mkdir(d, 0o755))
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	const files = 9
	name := func(i int) string { return fmt.Sprintf("f%d", i) }
	content := func(round, i int) string { return fmt.Sprintf("round-%d-of-%d", round, i) }
	write := func(file, content string) { must(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644)) }
	var checkpoints []string
	for round := range *kills {
		s := serveAndAsk(t, base, url)
		for i := range files {
			write(name(i), content(round, i))
		}
		if round%2 == 0 {
			s.ask(t, "keep") // the bucket has what is displaced next
		}
		checkpoints = append(checkpoints, s.ask(t, "checkpoint"))
		for i := range files {
			switch i % 3 {
			case 0:
				write(name(i), "after")
			case 1:
				write("temp", "after")
				must(t, os.Rename(filepath.Join(dir, "temp"), filepath.Join(dir, name(i))))
			case 2:
				must(t, os.Remove(filepath.Join(dir, name(i))))
			}
		}
		// Uploads begin a tenth of a second later: the kill is among them.
		time.Sleep(time.Duration(80+rand.IntN(150)) * time.Millisecond)
		s.kill()
	}
	s := serveAndAsk(t, base, url)
	for round, checkpoint := range checkpoints {
		for i := range files {
			var got string
			eventually(t, fmt.Sprintf("%s of checkpoint %s (%s)", name(i), checkpoint, got), func() bool {
				got = s.ask(t, "before %s %s", checkpoint, name(i))
				return got == content(round, i)
			})
		}
	}
	if answer := s.ask(t, "keep"); answer != "done" {
		t.Fatal(answer)
	}
	for i := range files {
		versions := s.ask(t, "versions %s", name(i))
		for round := range checkpoints {
			if n := strings.Count(versions, content(round, i)); n != 1 {
				t.Errorf("%s has the content of round %d %d times in its history, want once: %s", name(i), round, n, versions)
			}
		}
		got, err := os.ReadFile(filepath.Join(dir, name(i)))
		if i%3 == 2 && !errors.Is(err, os.ErrNotExist) || i%3 != 2 && string(got) != "after" {
			t.Errorf("%s is %q, %v", name(i), got, err)
		}
	}
	must(t, s.stdin.Close())
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the end: %v", err)
	}
}
