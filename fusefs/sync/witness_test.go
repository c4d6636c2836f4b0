package sync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

// A witness is a store that sees to it that no object is overwritten or deleted
// whose file has names left but no other object, history included.
type witness struct {
	object.Store
	t     testing.TB
	inode func(index.Ino) (index.Inode, error)

	mu  sync.Mutex // one change of the bucket at a time
	log []string   // what was done, to find out why a test failed
}

// noteLocked adds a line to the log.
func (s *witness) noteLocked(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// note is noteLocked for those who do not have the lock.
func (s *witness) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(format, args...)
}

// tell prints what was done to a key.
func (s *witness) tell(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, line := range s.log {
		if strings.Contains(line, key) {
			s.t.Logf("%d %s", i, line)
		}
	}
}

func (s *witness) Put(ctx context.Context, key string, body io.ReaderAt, size int64, o object.PutOptions) (object.Info, error) {
	// The body is read before the lock, since reading it may take its time.
	b := make([]byte, size)
	if n, err := body.ReadAt(b, 0); n < len(b) || err != nil && !errors.Is(err, io.EOF) {
		return object.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.losing(key)
	info, err := s.Store.Put(ctx, key, bytes.NewReader(b), size, o)
	s.noteLocked("PUT %s inode %s if %q: %v", key, o.Metadata[metaIno], o.IfMatch, err)
	s.confirm(lost, "PUT "+key)
	return info, err
}

func (s *witness) Copy(ctx context.Context, dst, src string, o object.CopyOptions) (object.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.losing(dst)
	info, err := s.Store.Copy(ctx, dst, src, o)
	s.noteLocked("COPY %s from %s: %v", dst, src, err)
	s.confirm(lost, "COPY "+dst)
	return info, err
}

func (s *witness) Delete(ctx context.Context, key, ifMatch string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.losing(key)
	err := s.Store.Delete(ctx, key, ifMatch)
	s.noteLocked("DELETE %s if %q: %v", key, ifMatch, err)
	s.confirm(lost, "DELETE "+key)
	return err
}

// losing returns the object of a file that a change replaces.
func (s *witness) losing(key string) object.Info {
	if strings.HasPrefix(key, ownPrefix) || strings.HasSuffix(key, "/") {
		return object.Info{}
	}
	info, _ := s.peek(key)
	return info
}

// confirm sees to it that there is another object of the inode or with the same
// content, as of a file that another tool put there.
func (s *witness) confirm(lost object.Info, what string) {
	ino := lost.Metadata[metaIno]
	var number uint64
	if _, err := fmt.Sscan(ino, &number); err != nil {
		return
	}
	n, err := s.inode(index.Ino(number))
	if errors.Is(err, fs.ErrNotExist) || n.Links == 0 {
		return
	}
	for listed, err := range object.All(context.Background(), s.Store, "") {
		if err != nil {
			s.t.Error(err)
			return
		}
		if info, ok := s.peek(listed.Key); ok && (info.Metadata[metaIno] == ino || info.ETag == lost.ETag) {
			return
		}
	}
	s.t.Errorf("after %s no object of inode %s is left", what, ino)
	for i, line := range s.log {
		s.t.Logf("%d %s", i, line)
	}
}

func (s *witness) peek(key string) (object.Info, bool) {
	info, err := s.Store.Head(context.Background(), key)
	return info, err == nil
}

// A flaky store fails at random: before the request, or its answer is lost.
type flaky struct {
	object.Store

	mu    sync.Mutex // protects the fields below
	rand  *rand.Rand
	fails float64 // of requests that change something or look at one object
}

func (s *flaky) setFails(p float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = p
}

// fate tells what happens to a request.
func (s *flaky) fate() (delay time.Duration, before, after error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delay = time.Duration(s.rand.IntN(2000)) * time.Microsecond
	if s.rand.Float64() >= s.fails {
		return delay, nil, nil
	}
	switch s.rand.IntN(4) {
	case 0:
		return delay, fmt.Errorf("status 500: %w", berth.ErrUnavailable), nil
	case 1:
		return delay, errors.New("status 400 out of the blue"), nil
	case 2:
		return delay, fmt.Errorf("another change at the same time: %w", object.ErrPrecondition), nil
	}
	return delay, nil, fmt.Errorf("the answer was lost: %w", berth.ErrUnavailable)
}

func (s *flaky) Put(ctx context.Context, key string, body io.ReaderAt, size int64, o object.PutOptions) (object.Info, error) {
	delay, before, after := s.fate()
	time.Sleep(delay) // the latency under test
	if before != nil {
		return object.Info{}, before
	}
	info, err := s.Store.Put(ctx, key, body, size, o)
	if err == nil && after != nil {
		return object.Info{}, after
	}
	return info, err
}

func (s *flaky) Copy(ctx context.Context, dst, src string, o object.CopyOptions) (object.Info, error) {
	delay, before, after := s.fate()
	time.Sleep(delay)
	if before != nil {
		return object.Info{}, before
	}
	info, err := s.Store.Copy(ctx, dst, src, o)
	if err == nil && after != nil {
		return object.Info{}, after
	}
	return info, err
}

func (s *flaky) Delete(ctx context.Context, key, ifMatch string) error {
	delay, before, after := s.fate()
	time.Sleep(delay)
	if before != nil {
		return before
	}
	if err := s.Store.Delete(ctx, key, ifMatch); err != nil {
		return err
	}
	return after
}

func (s *flaky) Head(ctx context.Context, key string) (object.Info, error) {
	if _, before, _ := s.fate(); before != nil && !errors.Is(before, object.ErrPrecondition) {
		return object.Info{}, before
	}
	return s.Store.Head(ctx, key)
}

func (s *flaky) List(ctx context.Context, o object.ListOptions) (object.Page, error) {
	if _, before, _ := s.fate(); before != nil && !errors.Is(before, object.ErrPrecondition) {
		return object.Page{}, before
	}
	return s.Store.List(ctx, o)
}
