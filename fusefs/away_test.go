package fusefs

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"berth/fusefs/object/embedded/embeddedtest"
	"berth/fusefs/object/s3"
)

var awayFor = flag.Duration("away", 3*time.Second, "how long TestStoreAwayAndBack keeps the store away")

// A faultProxy stands before a store and can be told to fail.
type faultProxy struct {
	*httptest.Server
	fault atomic.Pointer[func(w http.ResponseWriter, r *http.Request)]
	ended chan struct{} // lets go of what hangs
}

func newFaultProxy(t *testing.T, store string) *faultProxy {
	t.Helper()
	target, err := url.Parse(store)
	must(t, err)
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // it is signed
	}}
	p := &faultProxy{ended: make(chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fault := p.fault.Load(); fault != nil {
			(*fault)(w, r.WithContext(context.WithValue(r.Context(), proxyEnd{}, p.ended)))
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { close(p.ended); p.Close() })
	return p
}

// storeFaults are ways for a store to be away. A hung one answers nothing that it
// took then, also when it is well again.
var storeFaults = map[string]func(w http.ResponseWriter, r *http.Request){
	"unreachable": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"overloaded": func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
	},
	"expired": func(w http.ResponseWriter, r *http.Request) { refuse(w, http.StatusForbidden, "ExpiredToken") },
	"hung":    func(w http.ResponseWriter, r *http.Request) { <-r.Context().Value(proxyEnd{}).(chan struct{}) },
}

// proxyEnd is the key of faultProxy.ended in the context of a request.
type proxyEnd struct{}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
}

// TestStoreAwayAndBack takes the store away under 64 readers and writers. What is here
// stays as quick as it was; what is not is waited for a little and then EIO; the
// status tells; and when the store is back all goes on within seconds.
func TestStoreAwayAndBack(t *testing.T) {
	o := embeddedtest.Start(t, t.TempDir())
	for name, fault := range storeFaults {
		if !*long && name != "hung" && name != "expired" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			proxy := newFaultProxy(t, o.URL)
			through := o
			through.URL = proxy.URL
			store, err := s3.New(through)
			must(t, err)
			t.Cleanup(func() { store.Close() })
			testAwayAndBack(t, newRig(t, func(o *Options) { o.Store = store }), proxy, name, &fault)
		})
	}
}

func testAwayAndBack(t *testing.T, r *rig, proxy *faultProxy, name string, fault *func(w http.ResponseWriter, r *http.Request)) {
	dir := r.path(name)
	must(t, os.MkdirAll(dir+"/w", 0o755))
	for i := range 32 {
		must(t, os.WriteFile(fmt.Sprintf("%s/cached%d", dir, i), []byte(strings.Repeat("x", 9000)), 0o644))
	}
	must(t, os.WriteFile(dir+"/far", []byte("far"), 0o644))
	r.flush()
	evicted, err := r.evictOne(r.inoOf(name + "/far"))
	if err != nil || !evicted {
		t.Fatalf("far is not evicted: %v", err)
	}
	l := startAwayLoad(dir)
	proxy.fault.Store(fault)
	begun := time.Now()
	far := make(chan error, 1)
	go func() { _, err := os.ReadFile(dir + "/far"); far <- err }()
	eventually(t, "the status tells", func() bool { return !r.Status().StoreAway.IsZero() })
	told := time.Since(begun)
	cause := r.Status().StoreError
	time.Sleep(*awayFor - time.Since(begun)) // the length of the absence
	proxy.fault.Store(nil)
	healed := time.Now()
	eventually(t, "the status tells that it is back", func() bool { return r.Status().StoreAway.IsZero() })
	back := time.Since(healed)
	if err := <-far; err != nil && (*awayFor < 10*time.Second || !errors.Is(err, syscall.EIO)) {
		t.Errorf("who waited for the store: %v", err)
	}
	l.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second+*awayFor)
	defer cancel()
	must(t, r.Flush(ctx, ""))
	drained := time.Since(healed)
	if l.failed != nil || l.slowest > 3*time.Second {
		t.Errorf("meanwhile: %v, the slowest call took %v", l.failed, l.slowest)
	}
	if back > 6*time.Second {
		t.Errorf("it took %v to see that the store is back", back)
	}
	t.Logf("%s for %v: told after %v (%s), back after %v, all uploaded after %v; %d calls, the slowest %v", name, *awayFor,
		told.Round(time.Millisecond), cause, back.Round(time.Millisecond), drained.Round(time.Millisecond), l.calls, l.slowest.Round(time.Millisecond))
}

// An awayLoad is 32 readers of what is here and 32 writers.
type awayLoad struct {
	end   chan struct{}
	group sync.WaitGroup

	mu      sync.Mutex // protects the fields below
	calls   int
	slowest time.Duration
	failed  error
}

func startAwayLoad(dir string) *awayLoad {
	l := &awayLoad{end: make(chan struct{})}
	for i := range 32 {
		l.loop(func(int) error { _, err := os.ReadFile(fmt.Sprintf("%s/cached%d", dir, i)); return err })
		l.loop(func(n int) error {
			name := fmt.Sprintf("%s/w/%d-%d", dir, i, n%20)
			err := os.WriteFile(name, []byte(fmt.Sprint(n)), 0o644)
			if err == nil && n%3 == 0 {
				err = os.Rename(name, filepath.Join(dir, "w", fmt.Sprint("moved", i)))
			}
			return err
		})
	}
	return l
}

func (l *awayLoad) loop(do func(n int) error) {
	l.group.Go(func() {
		for n := 0; !stopped(l.end); n++ {
			begun := time.Now()
			err := do(n)
			took := time.Since(begun)
			l.mu.Lock()
			l.calls++
			l.slowest = max(l.slowest, took)
			l.failed = errors.Join(l.failed, err)
			l.mu.Unlock()
			time.Sleep(50 * time.Millisecond) // what people do is no storm
		}
	})
}

func (l *awayLoad) stop() { close(l.end); l.group.Wait() }
