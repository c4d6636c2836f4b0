package fusefs

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"berth/fusefs/object"
	"berth/fusefs/object/embedded/embeddedtest"
	"berth/fusefs/object/mem"
	"berth/fusefs/object/s3"
)

// serveForTest serves a mount below a directory until it is killed. Its bucket is
// the one that the file "store" there tells of; without that nothing reaches its
// store, so that all has to come from the state directory.
func serveForTest(base string) int {
	store, err := storeForTest(base)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	f, err := Open(context.Background(), Options{StateDir: filepath.Join(base, "state"), Mountpoint: filepath.Join(base, "mnt"),
		WholeBucket: true, Store: store, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), boot: os.Getenv(bootEnv)})
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

func storeForTest(base string) (object.Store, error) {
	data, err := os.ReadFile(filepath.Join(base, "store"))
	if err != nil {
		return new(mem.Store), nil
	}
	return s3.New(s3.Options{URL: string(data), Bucket: embeddedtest.Bucket, AccessKey: embeddedtest.AccessKey, SecretKey: embeddedtest.SecretKey})
}

// A served is a server in a process of its own.
type served struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func serve(t *testing.T, base string, env ...string) *served {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), serveEnv+"="+base), env...)
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

// stop ends the server the usual way, when all is in the bucket.
func (s *served) stop(t *testing.T) {
	t.Helper()
	must(t, s.stdin.Close())
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the end: %v", err)
	}
}

var kills = flag.Int("kills", 2, "how often TestKill kills the server, over all file systems")

// TestKill kills the server at random moments of a load of small files, fsync,
// git and SQLite. All that was closed, synced or committed is there afterwards,
// and in the end the bucket has what the tree has.
func TestKill(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) { testKill(t, newBase(t, newVolume(t, kind, 2<<30)), (*kills+1)/2) })
	}
}

func testKill(t *testing.T, base string, rounds int) {
	dir := filepath.Join(base, "mnt")
	bucket := serveBucket(t, base)
	loads := []load{newFileLoad("closed"), newJournalLoad("journal"), newReplaceLoad("replaced"),
		newTruncateLoad("truncated"), newGitLoad("repo"), newSQLiteLoad("delete"), newSQLiteLoad("wal")}
	var log report
	for round := range rounds {
		s := serve(t, base)
		for _, l := range loads {
			l.repair(dir)
			log.add(l.promise(true)(t, dir))
		}
		stop := startLoads(t, dir, loads)
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond) // the kill is at a random moment
		s.kill()
		stop()
		log.torn(t, bucket, loads)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	s := serve(t, base)
	for _, l := range loads {
		l.repair(dir)
		log.add(l.promise(true)(t, dir))
	}
	finish(t, s, dir, bucket)
	t.Logf("%d kills: checked %s; %d objects of the bucket in between", rounds, log.checks(), log.objects)
}
