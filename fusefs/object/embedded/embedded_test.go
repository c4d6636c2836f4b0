package embedded_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"berth/fusefs/object"
	"berth/fusefs/object/embedded"
	"berth/fusefs/object/s3"
	"berth/fusefs/object/storetest"
)

// start runs a store in this process and returns its URL.
func start(t testing.TB, dir, bucket string) string {
	t.Helper()
	t.Chdir("/") // gives the working directory back, which the store changes
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan string, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- embedded.Run(ctx, embedded.Options{
			Dir: dir, Listen: "127.0.0.1:0", AccessKey: "test", SecretKey: "testtest", Bucket: bucket,
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Ready:  func(url string) { ready <- url },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("store: %v", err)
		}
	})
	select {
	case url := <-ready:
		return url
	case err := <-ended:
		ended <- nil
		t.Fatalf("store: %v", err)
		return ""
	}
}

func open(t testing.TB, url, bucket string) *s3.Store {
	t.Helper()
	s, err := s3.New(s3.Options{URL: url, Bucket: bucket, AccessKey: "test", SecretKey: "testtest", PartSize: 5 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestContract(t *testing.T) {
	limits := storetest.Limits{NoOverlap: true, Segment: 255, PartSize: 5 << 20}
	var n atomic.Int32
	storetest.All(t, limits, func(t *testing.T) object.Store {
		bucket := fmt.Sprintf("contract-%d", n.Add(1))
		return open(t, start(t, t.TempDir(), bucket), bucket)
	})
}
