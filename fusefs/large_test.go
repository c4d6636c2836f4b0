package fusefs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"berth"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

// A rangeStore notes which ranges are asked for, and can let them wait.
type rangeStore struct {
	countingStore

	mu     sync.Mutex                                           // protects the fields below
	before func(ctx context.Context, o object.GetOptions) error // of a GET; nil = nothing
	gets   []object.GetOptions
}

func (s *rangeStore) Get(ctx context.Context, key string, o object.GetOptions) (io.ReadCloser, object.Info, error) {
	s.mu.Lock()
	s.gets = append(s.gets, o)
	before := s.before
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx, o); err != nil {
			return nil, object.Info{}, err
		}
	}
	return s.countingStore.Get(ctx, key, o)
}

func (s *rangeStore) setBefore(f func(ctx context.Context, o object.GetOptions) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// fetched returns the bytes asked for.
func (s *rangeStore) fetched() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.gets {
		n += o.Length
	}
	return n
}

const largeSize = 40<<20 + 12345

// newLarge mounts a bucket with one large object that nothing here has seen yet.
func newLarge(t *testing.T, change ...func(*Options)) (*rig, *rangeStore, []byte) {
	t.Helper()
	content := make([]byte, largeSize)
	rand.NewChaCha8([32]byte{1}).Read(content)
	store := &rangeStore{countingStore: countingStore{Store: new(mem.Store)}}
	_, err := store.Put(t.Context(), "large", bytes.NewReader(content), largeSize, object.PutOptions{})
	must(t, err)
	r := newRig(t, append([]func(*Options){func(o *Options) { o.Store = store }}, change...)...)
	return r, store, content
}

// The first byte of a large object needs one LIST, one HEAD and one GET, each
// waited for, and nothing else.
func TestLargeFirstByte(t *testing.T) {
	r, store, content := newLarge(t)
	var first atomic.Int64
	store.setBefore(func(ctx context.Context, o object.GetOptions) error {
		if o.Offset == 0 && first.Add(1) == 1 {
			return nil
		}
		<-ctx.Done() // what is fetched ahead, maybe before it
		return context.Cause(ctx)
	})
	f, err := os.Open(r.path("large"))
	must(t, err)
	defer f.Close()
	var b [1]byte
	if _, err := f.Read(b[:]); err != nil || b[0] != content[0] {
		t.Errorf("got %v, %v", b, err)
	}
	if heads, lists := store.Calls(mem.OpHead), store.Calls(mem.OpList); heads > 1 || lists > 1 {
		t.Errorf("%d HEAD and %d LIST before the first byte, want one of each", heads, lists)
	}
}

// Read in order it is fetched once, by some requests at a time, and is an ordinary
// cached file at the next open.
func TestLargeInOrder(t *testing.T) {
	r, store, content := newLarge(t)
	defer store.Inject(mem.Fault{Op: mem.OpGet, Delay: 5 * time.Millisecond})()
	got, err := os.ReadFile(r.path("large"))
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	if n := store.fetched(); n != largeSize {
		t.Errorf("%d bytes were fetched of %d", n, largeSize)
	}
	if n := store.most.Load(); n < 2 || n > 9 {
		t.Errorf("%d requests at a time, want 2 to 9", n)
	}
	eventually(t, "the content is here", func() bool {
		n, err := r.db.Inode(r.inoOf("large"))
		return err == nil && !n.Remote
	})
	before := len(store.gets)
	f, err := os.Open(r.path("large"))
	must(t, err)
	defer f.Close()
	o := r.opens.peek(r.inoOf("large"))
	defer r.opens.put(o, 1)
	if o.blocks != nil || o.through != r.Passthrough() {
		t.Error("the file is still read in pieces")
	}
	if _, err := io.Copy(io.Discard, f); err != nil || len(store.gets) != before {
		t.Errorf("read again: %v, %d more requests", err, len(store.gets)-before)
	}
}

// Read here and there only what is read is fetched, and kept for the next reader.
func TestLargeHereAndThere(t *testing.T) {
	r, store, content := newLarge(t)
	read := func() {
		t.Helper()
		f, err := os.Open(r.path("large"))
		must(t, err)
		defer f.Close()
		buf := make([]byte, 4096)
		for i := range int64(10) {
			at := (i*37%10)*4<<20 + 100000
			if _, err := f.ReadAt(buf, at); err != nil || !bytes.Equal(buf, content[at:at+4096]) {
				t.Fatalf("at %d: %v", at, err)
			}
		}
	}
	read()
	n := store.fetched()
	if n > 10*(256<<10) {
		t.Errorf("%d bytes were fetched for 10 reads", n)
	}
	read()
	if again := store.fetched() - n; again != 0 {
		t.Errorf("%d bytes were fetched again", again)
	}
	if info, err := os.Stat(r.path("large")); err != nil || info.Size() != largeSize {
		t.Errorf("stat: %v, %v", info, err)
	}
	eventually(t, "the file is released, and no pieces are kept", func() bool {
		r.sync.DropIdle()
		return r.sync.BlockBytes() == 0
	})
}

// A piece that breaks off is asked for again.
func TestLargeBrokenOff(t *testing.T) {
	r, store, content := newLarge(t)
	defer store.Inject(mem.Fault{Op: mem.OpRead, Times: 2, Err: berth.ErrUnavailable})()
	if got, err := os.ReadFile(r.path("large")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// An object that is replaced under a reader: what he has stays, what he has not is
// refused, and who opens it anew gets the new one.
func TestLargeReplaced(t *testing.T) {
	r, store, content := newLarge(t)
	f, err := os.Open(r.path("large"))
	must(t, err)
	defer f.Close()
	buf := make([]byte, 4096)
	_, err = f.ReadAt(buf, 20<<20)
	must(t, err)
	other := bytes.Repeat([]byte("other"), 3<<20)
	_, err = store.Put(t.Context(), "large", bytes.NewReader(other), int64(len(other)), object.PutOptions{})
	must(t, err)
	if _, err := f.ReadAt(buf, 30<<20); !errors.Is(err, syscall.ESTALE) {
		t.Errorf("a piece that is gone: got %v, want ESTALE", err)
	}
	if _, err := f.ReadAt(buf, 20<<20); err != nil || !bytes.Equal(buf, content[20<<20:][:4096]) {
		t.Errorf("a piece that was read: %v", err)
	}
	eventually(t, "the new one is here", func() bool {
		got, err := os.ReadFile(r.path("large"))
		return err == nil && bytes.Equal(got, other)
	})
}

// A store that hangs: reads end in EIO, a reader can be killed, and all goes on
// when it is back.
func TestLargeHung(t *testing.T) {
	r, store, content := newLarge(t, func(o *Options) { o.storeWait = 4 * time.Second })
	f, err := os.Open(r.path("large"))
	must(t, err)
	defer f.Close()
	back := make(chan struct{})
	store.setBefore(func(ctx context.Context, _ object.GetOptions) error {
		select {
		case <-back:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	begin := time.Now()
	buf := make([]byte, 4096)
	if _, err := f.ReadAt(buf, 8<<20); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("the read took %v", d)
	}
	cat := exec.Command("cat", r.path("large"))
	must(t, cat.Start())
	time.AfterFunc(200*time.Millisecond, func() { cat.Process.Kill() })
	begin = time.Now()
	cat.Wait()
	if d := time.Since(begin); d > 3*time.Second {
		t.Errorf("the killed reader took %v to go", d)
	}
	close(back)
	if got, err := os.ReadFile(r.path("large")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("after it came back: got %d bytes, %v", len(got), err)
	}
}

// A file that is removed, replaced or renamed while it is read in pieces keeps its
// content for the reader.
func TestLargeNameGoes(t *testing.T) {
	for name, do := range map[string]func(r *rig) error{
		"removed":  func(r *rig) error { return os.Remove(r.path("large")) },
		"renamed":  func(r *rig) error { return os.Rename(r.path("large"), r.path("moved")) },
		"replaced": func(r *rig) error { return os.Rename(r.path("small"), r.path("large")) },
	} {
		t.Run(name, func(t *testing.T) {
			r, store, content := newLarge(t)
			must(t, os.WriteFile(r.path("small"), []byte("small"), 0o644))
			r.flush()
			f, err := os.Open(r.path("large"))
			must(t, err)
			defer f.Close()
			buf := make([]byte, 4096)
			_, err = f.ReadAt(buf, 20<<20)
			must(t, err)
			must(t, do(r))
			r.flush()
			got, err := io.ReadAll(io.NewSectionReader(f, 0, largeSize))
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("got %d bytes, %v", len(got), err)
			}
			must(t, f.Close())
			_, err = store.Head(t.Context(), "large")
			if name != "replaced" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the old object: got %v, want fs.ErrNotExist", err)
			}
		})
	}
}

// Somebody writes while another reads in pieces: both see one file.
func TestLargeWrittenMeanwhile(t *testing.T) {
	r, _, content := newLarge(t)
	f, err := os.Open(r.path("large"))
	must(t, err)
	defer f.Close()
	buf := make([]byte, 4096)
	_, err = f.ReadAt(buf, 20<<20)
	must(t, err)
	w, err := os.OpenFile(r.path("large"), os.O_RDWR, 0)
	must(t, err)
	_, err = w.WriteAt([]byte("changed"), 10<<20)
	must(t, err)
	if _, err := f.ReadAt(buf, 10<<20); err != nil || string(buf[:7]) != "changed" {
		t.Errorf("the reader: got %q, %v", buf[:7], err)
	}
	must(t, w.Close())
	copy(content[10<<20:], "changed")
	if got, err := io.ReadAll(io.NewSectionReader(f, 0, largeSize)); err != nil || !bytes.Equal(got, content) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	r.flush()
	if got, err := r.object("large"); err != nil || got != string(content) {
		t.Errorf("the bucket has %d bytes, %v", len(got), err)
	}
	must(t, os.Truncate(r.path("large"), 0))
	if n, err := f.ReadAt(buf, 0); n != 0 || err != io.EOF {
		t.Errorf("after it was truncated: got %d bytes, %v", n, err)
	}
}

// A patternStore has one object of any size that takes no memory.
type patternStore struct {
	*mem.Store
	size int64
}

func (s *patternStore) info() object.Info {
	return object.Info{Key: "huge", Size: s.size, ETag: "pattern", LastModified: time.Unix(1e9, 0), Metadata: map[string]string{}}
}

func (s *patternStore) List(context.Context, object.ListOptions) (object.Page, error) {
	return object.Page{Objects: []object.Info{s.info()}}, nil
}

func (s *patternStore) Head(context.Context, string) (object.Info, error) { return s.info(), nil }

func (s *patternStore) Get(_ context.Context, _ string, o object.GetOptions) (io.ReadCloser, object.Info, error) {
	return io.NopCloser(&pattern{at: o.Offset, end: o.Offset + o.Length}), s.info(), nil
}

// A pattern has the number of each 8 bytes in them.
type pattern struct{ at, end int64 }

func (p *pattern) Read(b []byte) (int, error) {
	n := 0
	for ; n < len(b) && p.at < p.end; n, p.at = n+1, p.at+1 {
		b[n] = patternAt(p.at)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func patternAt(at int64) byte { return byte(at/8) | 1 }

// Reading a large object takes bounded memory, however large it is and however
// many read it.
func TestLargeMemory(t *testing.T) {
	store := &patternStore{Store: new(mem.Store), size: 256 << 20}
	r := newRig(t, func(o *Options) { o.Store = store })
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var most uint64
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() {
			out, err := exec.Command("python3", "-c", `import sys
f = open(sys.argv[1], "rb", 0); f.seek(int(sys.argv[2]) << 26)
for _ in range(64):
    at = f.tell(); b = f.read(1 << 20)
    assert len(b) == 1 << 20 and b[:9] == bytes([(at + i) // 8 & 255 | 1 for i in range(9)]), at`, r.path("huge"), fmt.Sprint(i)).CombinedOutput()
			if err != nil {
				t.Errorf("reader %d: %v\n%s", i, err, out)
			}
		})
	}
	done := make(chan struct{})
	go func() { readers.Wait(); close(done) }()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case <-done:
			tick.Stop()
			if grown := int64(most) - int64(before.HeapAlloc); grown > 64<<20 {
				t.Errorf("memory grew by %d MiB", grown>>20)
			} else {
				t.Logf("memory grew by %d KiB", grown>>10)
			}
			return
		case <-tick.C:
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
	}
}

// A disk without room: what is read goes through, and nothing is kept.
func TestLargeNoRoom(t *testing.T) {
	r, _, content := newLarge(t)
	r.space.left.Store(0)
	f, err := os.Open(r.path("large"))
	must(t, err)
	defer f.Close()
	buf := make([]byte, 1<<20)
	for at := int64(0); at < 8<<20; at += 1 << 20 {
		r.space.left.Store(0)
		if _, err := f.ReadAt(buf, at); err != nil || !bytes.Equal(buf, content[at:at+1<<20]) {
			t.Fatalf("at %d: %v", at, err)
		}
	}
}
