package fusefs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"testing"

	"net/http/httptest"

	"berth/fusefs/object"
	"berth/fusefs/object/embedded/embeddedtest"
	"berth/fusefs/object/mem"
	"berth/fusefs/object/s3"
)

// A composingStore notes how much of composed objects is sent.
type composingStore struct {
	*mem.Store
	mu     sync.Mutex // protects the fields below
	sent   int64
	refuse bool
}

func (s *composingStore) Compose(ctx context.Context, key string, body io.ReaderAt, size int64, o object.ComposeOptions) (object.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse {
		return object.Info{}, errors.ErrUnsupported
	}
	s.sent += size
	for _, r := range o.Keep {
		s.sent -= r.To - r.From
	}
	return s.Store.Compose(ctx, key, body, size, o)
}

// take returns what was sent since the last call, in composed objects and whole ones.
func (s *composingStore) take(puts *int) (sent int64, whole int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent, s.sent = s.sent, 0
	whole = s.Calls(mem.OpPut) - *puts
	*puts += whole
	return sent, whole
}

const block = 8 << 20

func randomBytes(size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{9}).Read(b)
	return b
}

// change writes into a file and into what it should hold.
func change(t *testing.T, path string, want []byte, at int, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte(text), int64(at))
	must(t, errors.Join(err, f.Close()))
	copy(want[at:], text)
}

// Of a large file that changed the bucket gets the blocks that differ.
func TestDelta(t *testing.T) {
	store := &composingStore{Store: new(mem.Store)}
	r := newRig(t, func(o *Options) { o.Store = store })
	want := randomBytes(9*block + 777)
	must(t, os.WriteFile(r.path("f"), want, 0o644))
	puts := 0
	stored := func(what string, mostSent int64, mostWhole int) {
		t.Helper()
		r.flush()
		sent, whole := store.take(&puts)
		if sent > mostSent || whole > mostWhole {
			t.Errorf("%s: %d bytes and %d whole objects were sent, want at most %d and %d", what, sent, whole, mostSent, mostWhole)
		}
		name := "f"
		if _, err := os.Stat(r.path(name)); err != nil {
			name = "g"
		}
		if got, err := r.object(name); err != nil || got != string(want) {
			t.Fatalf("%s: the bucket has %d bytes, %v", what, len(got), err)
		}
	}
	stored("new", 0, 1)
	change(t, r.path("f"), want, 4*block+100, string(bytes.Repeat([]byte("x"), 1<<20)))
	stored("1 MiB in the middle", block, 0)
	change(t, r.path("f"), want, 5*block-5, "over the edge")
	change(t, r.path("f"), want, 0, "and the beginning")
	stored("two places", 3*block, 0)
	f, err := os.OpenFile(r.path("f"), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString("appended")
	must(t, errors.Join(err, f.Close()))
	want = append(want, "appended"...)
	stored("appended", block, 0)
	must(t, os.Truncate(r.path("f"), 8*block+3))
	want = want[:8*block+3]
	stored("cut", block, 0)
	must(t, os.Chmod(r.path("f"), 0o600))
	stored("its mode", 0, 0)
	if info, err := store.Head(t.Context(), "f"); err != nil || info.Metadata["file-permissions"] != "0100600" {
		t.Errorf("its mode: got %v, %v", info.Metadata, err)
	}
	must(t, os.Rename(r.path("f"), r.path("g")))
	stored("renamed", 0, 0)
	change(t, r.path("g"), want, 3*block, "changed under its new name")
	stored("changed under its new name", block, 0)
	store.mu.Lock()
	store.refuse = true
	store.mu.Unlock()
	change(t, r.path("g"), want, 2*block, "whole")
	stored("a store that cannot", 0, 1)
}

// A large file that only the bucket has is changed after a cold start.
func TestDeltaCold(t *testing.T) {
	store := &composingStore{Store: new(mem.Store)}
	want := randomBytes(9 * block)
	_, err := store.Put(t.Context(), "f", bytes.NewReader(want), int64(len(want)), object.PutOptions{})
	must(t, err)
	r := newRig(t, func(o *Options) { o.Store = store })
	must(t, os.Chmod(r.path("f"), 0o600))
	r.flush()
	if gets := store.Calls(mem.OpGet); gets != 0 {
		t.Errorf("chmod fetched the content: %d GET", gets)
	}
	change(t, r.path("f"), want, 4*block+100, "changed")
	r.flush()
	puts := 1
	if sent, whole := store.take(&puts); sent != block || whole != 0 {
		t.Errorf("%d bytes and %d whole objects were sent, want one block", sent, whole)
	}
	if got, err := r.object("f"); err != nil || got != string(want) {
		t.Errorf("the bucket has %d bytes, %v", len(got), err)
	}
}

// Somebody else writes the object between: what is kept of it is pinned, so that
// the two never mix.
func TestDeltaRace(t *testing.T) {
	store := &composingStore{Store: new(mem.Store)}
	r := newRig(t, func(o *Options) { o.Store = store })
	want := randomBytes(9 * block)
	must(t, os.WriteFile(r.path("f"), want, 0o644))
	r.flush()
	other := bytes.Repeat([]byte("other"), 9*block/5)
	_, err := store.Put(t.Context(), "f", bytes.NewReader(other), int64(len(other)), object.PutOptions{})
	must(t, err)
	change(t, r.path("f"), want, 4*block, "changed later")
	r.flush()
	got, err := r.object("f")
	if err != nil || got != string(want) && got != string(other) {
		t.Errorf("the bucket has a mixture of %d bytes, %v", len(got), err)
	}
}

// With the embedded store: 1 MiB changed in the middle sends at most three parts.
func TestDeltaParts(t *testing.T) {
	o := embeddedtest.Start(t, t.TempDir())
	to, err := url.Parse(o.URL)
	must(t, err)
	var mu sync.Mutex
	sent, copied := 0, 0
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(to)
		p.Out.Host = p.In.Host
		mu.Lock()
		defer mu.Unlock()
		if p.In.Method == http.MethodPut && p.In.URL.Query().Has("partNumber") {
			if p.In.Header.Get("X-Amz-Copy-Source") != "" {
				copied++
			} else {
				sent++
			}
		}
	}})
	t.Cleanup(proxy.Close)
	o.URL = proxy.URL
	store, err := s3.New(o)
	must(t, err)
	t.Cleanup(func() { store.Close() })
	r := newRig(t, func(o *Options) { o.Store = store })
	want := randomBytes(9 * block)
	must(t, os.WriteFile(r.path("f"), want, 0o644))
	r.flush()
	mu.Lock()
	sent = 0
	mu.Unlock()
	change(t, r.path("f"), want, 4*block+block/2, string(bytes.Repeat([]byte("x"), 1<<20)))
	r.flush()
	mu.Lock()
	if sent == 0 || sent > 3 || copied == 0 {
		t.Errorf("%d parts were sent and %d copied", sent, copied)
	}
	t.Logf("%d parts sent, %d copied", sent, copied)
	mu.Unlock()
	if got, err := r.object("f"); err != nil || got != string(want) {
		t.Errorf("the bucket has %d bytes, %v", len(got), err)
	}
}
