package fusefs

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/fusefs/object/embedded/embeddedtest"
	"berth/fusefs/object/s3"
)

// A refuser stands before a store and answers with an error while it has one.
type refuser struct {
	proxy *httputil.ReverseProxy

	mu     sync.Mutex // protects the fields below
	status int        // 0 = passes on
	code   string
	dates  map[string]bool // by which requests were signed, refused ones and others
}

func (r *refuser) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	status, code := r.status, r.code
	r.dates[req.Header.Get("X-Amz-Date")] = true
	r.mu.Unlock()
	if status == 0 {
		r.proxy.ServeHTTP(w, req)
		return
	}
	io.Copy(io.Discard, req.Body)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>refused</Message></Error>", code)
}

func (r *refuser) refuse(status int, code string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.code, r.dates = status, code, make(map[string]bool)
}

// s3fs#1019, mountpoint#974, s3fs#1290, s3ql#84: credentials that expired for a
// time, and requests that were sent again with their old date. Whatever a store
// refuses with, what is here is read and everything is written; when it takes
// requests again they are signed anew, and all goes up without a restart.
func TestReplayRefused(t *testing.T) {
	o := embeddedtest.Start(t, t.TempDir())
	target, err := url.Parse(o.URL)
	must(t, err)
	door := &refuser{dates: make(map[string]bool), proxy: &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.Out.URL.Scheme, p.Out.URL.Host = target.Scheme, target.Host
		p.Out.Host = p.In.Host // which is signed
	}}}
	server := httptest.NewServer(door)
	defer server.Close()
	o.URL = server.URL
	store, err := s3.New(o)
	must(t, err)
	defer store.Close()
	refusals := []struct {
		status int
		code   string
		errno  syscall.Errno // of a read that needs the store; 0 = it waits for the store for a while
	}{
		{403, "ExpiredToken", 0}, {403, "RequestTimeTooSkewed", 0}, {403, "InvalidAccessKeyId", syscall.EACCES},
		{403, "AccessDenied", syscall.EACCES}, {429, "TooManyRequests", 0}, {503, "SlowDown", 0}, {500, "InternalError", 0},
	}
	for i := range refusals {
		putInto(t, store, fmt.Sprintf("uncached%d/f", i), "fetched")
	}
	r := newRig(t, func(o *Options) { o.Store = store })
	must(t, os.WriteFile(r.path("cached"), []byte("here"), 0o644))
	r.flush()
	for i, c := range refusals {
		door.refuse(c.status, c.code)
		written, uncached := fmt.Sprint("written", i), fmt.Sprintf("uncached%d/f", i)
		must(t, os.WriteFile(r.path(written), []byte(c.code), 0o644))
		if got, err := os.ReadFile(r.path("cached")); err != nil || string(got) != "here" {
			t.Errorf("%s: what is here: got %q, %v", c.code, got, err)
		}
		read := make(chan error, 1)
		go func() {
			_, err := os.ReadFile(r.path(uncached))
			read <- err
		}()
		if c.errno != 0 {
			if err := <-read; !errors.Is(err, c.errno) {
				t.Errorf("%s: what is not here: got %v, want %v", c.code, err, c.errno)
			}
			read <- nil
		}
		eventually(t, "it waits after "+c.code, func() bool { st, err := r.sync.Status(); return err == nil && st.Files > 0 })
		door.refuse(0, "")
		begun := time.Now()
		eventually(t, "the upload goes on after "+c.code, func() bool { got, err := r.object(written); return err == nil && got == c.code })
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("after %s the upload went on after %v", c.code, took)
		}
		if err := <-read; err != nil {
			t.Errorf("a read that waited for the end of %s: %v", c.code, err)
		}
		if got, err := os.ReadFile(r.path(uncached)); err != nil || string(got) != "fetched" {
			t.Errorf("after %s: got %q, %v", c.code, got, err)
		}
	}
}
