// Package embeddedtest gives tests a real S3 server of their own.
package embeddedtest

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"berth/fusefs/object/embedded"
	"berth/fusefs/object/s3"
)

// Credentials and bucket of the server.
const (
	AccessKey = "test"
	SecretKey = "a-secret-of-tests"
	Bucket    = "bucket"
)

// Start runs the embedded store over the directory until the test ends and
// returns how to reach it. One runs at a time in a process, and the working
// directory is not the test's own meanwhile: such a test cannot be parallel.
func Start(t testing.TB, dir string) s3.Options {
	t.Helper()
	before, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan string, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- embedded.Run(ctx, embedded.Options{
			Dir: dir, Listen: "127.0.0.1:0", AccessKey: AccessKey, SecretKey: SecretKey, Bucket: Bucket,
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Ready:  func(url string) { ready <- url },
		})
	}()
	var url string
	select {
	case url = <-ready:
	case err := <-ended:
		cancel()
		t.Fatalf("cannot start the store: %v", err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the store ended: %v", err)
		}
		if err := os.Chdir(before); err != nil {
			t.Errorf("the working directory: %v", err)
		}
	})
	return s3.Options{URL: url, Bucket: Bucket, AccessKey: AccessKey, SecretKey: SecretKey}
}

// Open is Start on a directory of the test, and a Store on it. Bodies above 5 MiB
// go up in parts.
func Open(t testing.TB) *s3.Store {
	t.Helper()
	o := Start(t, t.TempDir())
	o.PartSize = 5 << 20
	s, err := s3.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
