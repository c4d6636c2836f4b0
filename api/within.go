package api

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"berth"
)

// maxFileOps bounds the file operations under way, and with it the goroutines
// that wait for a file system that does not answer.
const maxFileOps = 512

// within runs one operation on files, but waits no longer than FileTimeout or
// ctx. An operation that the file system never answers cannot be ended: its
// goroutine stays until it is, and counts against maxFileOps. What an abandoned
// operation returns in the end is given to drop, if that is not nil; the
// operation must not touch what the caller goes on to use.
func within[T any](ctx context.Context, s *Server, op func() (T, error), drop func(T)) (T, error) {
	return withinTime(ctx, s, s.o.FileTimeout, op, drop)
}

// withinTime is within with another time than FileTimeout.
func withinTime[T any](ctx context.Context, s *Server, limit time.Duration, op func() (T, error), drop func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var none T
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("the file system did not answer within %v: %w", limit, berth.ErrUnavailable))
	defer cancel()
	select {
	case s.fileOps <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	done := make(chan result)
	go func() {
		v, err := op()
		<-s.fileOps
		select {
		case done <- result{v, err}:
		case <-ctx.Done():
			if err == nil && drop != nil {
				drop(v)
			}
		}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// servedFile is a file that is sent to a client: an io.ReadSeeker whose reads
// end in time, and that gives the client a time for each piece.
type servedFile struct {
	ctx  context.Context
	s    *Server
	f    *os.File
	size int64
	at   int64
	out  *http.ResponseController
}

func (r *servedFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case 0:
		r.at = offset
	case 1:
		r.at += offset
	case 2:
		r.at = r.size + offset
	}
	return r.at, nil
}

func (r *servedFile) Read(p []byte) (int, error) {
	// A deadline is only refused by a writer that has none, in tests.
	_ = r.out.SetWriteDeadline(time.Now().Add(r.s.o.TransferTime))
	// The operation has a buffer of its own: p may be used again by the caller
	// while an abandoned read still comes in.
	f, at := r.f, r.at
	buf := make([]byte, min(len(p), 128<<10))
	n, err := within(r.ctx, r.s, func() (int, error) { return f.ReadAt(buf, at) }, nil)
	if n > 0 {
		copy(p, buf[:n])
		r.at += int64(n)
		return n, nil
	}
	return 0, err
}
