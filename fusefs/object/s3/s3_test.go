package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth"
	"berth/fusefs/object"
	"berth/fusefs/object/s3"
)

// fake returns a store whose server answers by the handler.
func fake(t *testing.T, h http.HandlerFunc) *s3.Store {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	s, err := s3.New(s3.Options{URL: server.URL, Bucket: "bucket", AccessKey: "a", SecretKey: "s", PartSize: 5 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   error
		text   string // part of what the operator reads
	}{
		{404, "NoSuchKey", fs.ErrNotExist, ""},
		{404, "NoSuchBucket", berth.ErrUnavailable, "the bucket does not exist"},
		{412, "PreconditionFailed", object.ErrPrecondition, ""},
		{409, "ConditionalRequestConflict", object.ErrPrecondition, ""},
		{409, "ExistingObjectIsDirectory", object.ErrOverlap, ""},
		{400, "XMinioParentIsObject", object.ErrOverlap, ""},
		{400, "KeyTooLongError", fs.ErrInvalid, ""},
		{400, "MetadataTooLarge", fs.ErrInvalid, ""},
		{400, "ExpiredToken", berth.ErrUnavailable, "credentials have expired"},
		{400, "RequestTimeout", berth.ErrUnavailable, ""},
		{403, "RequestTimeTooSkewed", berth.ErrUnavailable, "clock"},
		{403, "AccessDenied", fs.ErrPermission, "AccessDenied"},
		{403, "InvalidAccessKeyId", fs.ErrPermission, "does not know these credentials"},
		{403, "SignatureDoesNotMatch", fs.ErrPermission, "does not know these credentials"},
		{429, "TooManyRequests", berth.ErrUnavailable, ""},
		{500, "InternalError", berth.ErrUnavailable, ""},
		{503, "SlowDown", berth.ErrUnavailable, "SlowDown"},
		{507, "InsufficientStorage", berth.ErrUnavailable, ""},
		{501, "NotImplemented", errors.ErrUnsupported, ""},
		{502, "", berth.ErrUnavailable, ""},
		{307, "TemporaryRedirect", nil, "TemporaryRedirect"},
	} {
		t.Run(fmt.Sprint(c.status, c.code), func(t *testing.T) {
			s := fake(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.WriteHeader(c.status)
				if c.code == "" {
					fmt.Fprint(w, "<html>a proxy's page")
					return
				}
				fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>some words</Message></Error>`, c.code)
			})
			ctx := t.Context()
			_, _, err := s.Get(ctx, "some/key", object.GetOptions{})
			check(t, "get", err, c.want, c.text)
			_, err = s.Put(ctx, "some/key", strings.NewReader("x"), 1, object.PutOptions{})
			check(t, "put", err, c.want, c.text)
			_, err = s.Put(ctx, "some/key", strings.NewReader("x"), 1, object.PutOptions{InParts: true})
			check(t, "put in parts", err, c.want, c.text)
			_, err = s.Copy(ctx, "dst", "some/key", object.CopyOptions{})
			check(t, "copy", err, c.want, c.text)
			_, err = s.List(ctx, object.ListOptions{Prefix: "some/key"})
			check(t, "list", err, c.want, c.text)
			if c.want != fs.ErrNotExist {
				err = s.Delete(ctx, "some/key", "")
				check(t, "delete", err, c.want, c.text)
			}
		})
	}
}

func check(t *testing.T, call string, err, want error, text string) {
	t.Helper()
	if err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), `"some/key"`) {
		t.Errorf("%s: got %v, want %v with %q that names the key", call, err, want, text)
	}
	for _, other := range []error{fs.ErrNotExist, object.ErrPrecondition, object.ErrOverlap, berth.ErrUnavailable, fs.ErrPermission, fs.ErrInvalid} {
		if other != want && errors.Is(err, other) {
			t.Errorf("%s: %v matches %q as well", call, err, other)
		}
	}
}

// TestIfMatchOnNothing holds the answer of S3 itself: 404 to a PUT.
func TestIfMatchOnNothing(t *testing.T) {
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(404)
		fmt.Fprint(w, `<Error><Code>NoSuchKey</Code></Error>`)
	})
	_, err := s.Put(t.Context(), "k", strings.NewReader("x"), 1, object.PutOptions{IfMatch: "e"})
	if !errors.Is(err, object.ErrPrecondition) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("put: got %v, want a failed precondition", err)
	}
}

// TestDeleteOfNothing holds stores that answer 412 to a conditional DELETE of
// what does not exist.
func TestDeleteOfNothing(t *testing.T) {
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(412)
			return
		}
		w.WriteHeader(404)
	})
	if err := s.Delete(t.Context(), "k", "e"); err != nil {
		t.Errorf("delete: got %v, want none", err)
	}
}

func TestBrokenAnswers(t *testing.T) {
	whole := func(w http.ResponseWriter) {
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		w.Header().Set("ETag", `"e"`)
	}
	t.Run("body breaks off", func(t *testing.T) {
		s := fake(t, func(w http.ResponseWriter, r *http.Request) {
			whole(w)
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("only this"))
		})
		r, _, err := s.Get(t.Context(), "k", object.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		data, err := io.ReadAll(r)
		if !errors.Is(err, berth.ErrUnavailable) || !strings.Contains(err.Error(), `"k"`) {
			t.Errorf("got %d bytes and %v, want unavailable", len(data), err)
		}
	})
	t.Run("range ignored", func(t *testing.T) {
		s := fake(t, func(w http.ResponseWriter, r *http.Request) {
			whole(w)
			w.Write([]byte("all of it"))
		})
		_, _, err := s.Get(t.Context(), "k", object.GetOptions{Offset: 3})
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v, want unsupported", err)
		}
	})
	t.Run("list is no list", func(t *testing.T) {
		s := fake(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html><body>hello") })
		_, err := s.List(t.Context(), object.ListOptions{Prefix: "k"})
		if !errors.Is(err, berth.ErrUnavailable) {
			t.Errorf("got %v, want unavailable", err)
		}
	})
	t.Run("list of something else", func(t *testing.T) {
		s := fake(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "<ListBucketResult><Contents><Key>other</Key></Contents></ListBucketResult>")
		})
		if page, err := s.List(t.Context(), object.ListOptions{Prefix: "k"}); err == nil {
			t.Errorf("got %+v, want an error", page)
		}
	})
	t.Run("copy breaks off", func(t *testing.T) {
		s := fake(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "<Error><Code>InternalError</Code></Error>")
		})
		if _, err := s.Copy(t.Context(), "d", "k", object.CopyOptions{}); !errors.Is(err, berth.ErrUnavailable) {
			t.Errorf("got %v, want unavailable", err)
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		s, err := s3.New(s3.Options{URL: "http://127.0.0.1:1", Bucket: "bucket", AccessKey: "a", SecretKey: "s"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Head(t.Context(), "k"); !errors.Is(err, berth.ErrUnavailable) {
			t.Errorf("got %v, want unavailable", err)
		}
	})
}

// TestHangingServer proves that a server that takes a request and says nothing
// is ended by the deadline, without one by the caller.
func TestHangingServer(t *testing.T) {
	over := make(chan struct{})
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodGet && r.URL.Path == "/bucket/half" {
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("half"))
			w.(http.Flusher).Flush()
		}
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(over) })
	quick := object.WithDeadline(s, object.Deadlines{Answer: 100 * time.Millisecond, Stall: 100 * time.Millisecond})
	_, err := quick.Head(t.Context(), "k")
	if !errors.Is(err, berth.ErrUnavailable) || !strings.Contains(err.Error(), "no answer for 100ms") {
		t.Errorf("head: got %v", err)
	}
	_, err = quick.Put(t.Context(), "k", strings.NewReader("x"), 1, object.PutOptions{})
	if !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("put: got %v", err)
	}
	r, _, err := quick.Get(t.Context(), "half", object.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadAll(r); !errors.Is(err, berth.ErrUnavailable) || !strings.Contains(err.Error(), "no progress for 100ms") {
		t.Errorf("read: got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = s.Head(ctx, "k")
	if !errors.Is(err, berth.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("head with the caller's own deadline: got %v", err)
	}
}

// TestFailedUploadIsAborted proves that parts of a failed upload do not stay,
// and that what was never completed is never asked to be.
func TestFailedUploadIsAborted(t *testing.T) {
	var aborted, completed, atOnce, most atomic.Int32
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case r.Method == http.MethodPost && q.Has("uploads"):
			fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>id1</UploadId></InitiateMultipartUploadResult>")
		case r.Method == http.MethodPut:
			n := atOnce.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			io.Copy(io.Discard, r.Body)
			atOnce.Add(-1)
			if q.Get("partNumber") == "3" {
				w.WriteHeader(503)
				return
			}
			w.Header().Set("ETag", `"p"`)
		case r.Method == http.MethodDelete && q.Get("uploadId") == "id1":
			aborted.Add(1)
			w.WriteHeader(204)
		default:
			completed.Add(1)
		}
	})
	const size = 40 << 20
	_, err := s.Put(t.Context(), "k", io.NewSectionReader(zeros{}, 0, size), size, object.PutOptions{})
	if !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
	if aborted.Load() != 1 || completed.Load() != 0 {
		t.Errorf("aborted %d times and completed %d times, want 1 and 0", aborted.Load(), completed.Load())
	}
	if n := most.Load(); n > 4 {
		t.Errorf("%d parts at once, at most 4 are allowed", n)
	}
}

type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

func TestOptions(t *testing.T) {
	for _, change := range []func(*s3.Options){
		func(o *s3.Options) { o.URL = "" },
		func(o *s3.Options) { o.URL = "127.0.0.1:1" },
		func(o *s3.Options) { o.URL = "ftp://x" },
		func(o *s3.Options) { o.URL = "http://" },
		func(o *s3.Options) { o.URL = "http://u:p@x" },
		func(o *s3.Options) { o.URL = "http://x/path" },
		func(o *s3.Options) { o.URL = "http://x?q" },
		func(o *s3.Options) { o.Bucket = "" },
		func(o *s3.Options) { o.Bucket = "b" },
		func(o *s3.Options) { o.AccessKey = "" },
		func(o *s3.Options) { o.SecretKey = "" },
		func(o *s3.Options) { o.PartSize = 1 },
	} {
		o := s3.Options{URL: "http://x", Bucket: "bucket", AccessKey: "a", SecretKey: "s"}
		change(&o)
		if _, err := s3.New(o); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%+v: got %v, want fs.ErrInvalid", o, err)
		}
	}
}

// TestBaseURL proves that the bucket is named where the server looks for it.
func TestBaseURL(t *testing.T) {
	for _, c := range []struct{ url, region, bucket, want string }{
		{"http://127.0.0.1:9000", "", "bucket", "http://127.0.0.1:9000/bucket/"},
		{"https://minio.example.com/", "", "bucket", "https://minio.example.com/bucket/"},
		{"https://s3.amazonaws.com", "eu-west-1", "bucket", "https://bucket.s3.dualstack.eu-west-1.amazonaws.com/"},
		{"https://s3.amazonaws.com", "", "my.bucket", "https://s3.dualstack.us-east-1.amazonaws.com/my.bucket/"},
	} {
		s, err := s3.New(s3.Options{URL: c.url, Region: c.region, Bucket: c.bucket, AccessKey: "a", SecretKey: "s"})
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if got := s3.BaseURL(s); got != c.want {
			t.Errorf("%s: got %s, want %s", c.url, got, c.want)
		}
		s.Close()
	}
}
