package sync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"berth/fusefs/object"
)

// Bounds of reading ahead within one object.
const (
	streamStart = 1 << 20  // read ahead from the beginning, and of who goes on where he was
	streamMost  = 96 << 20 // doubled up to it
	streamSlack = 1 << 20  // by so much the kernel's requests come out of order
	maxStreams  = 8        // readers of one object that are followed
)

// A stream is one reader who goes through an object.
type stream struct {
	next   int64 // where he is
	ahead  int64 // up to there all is requested
	window int64 // how far to read ahead; 0 = he may be reading here and there
}

// Size returns the size of the whole content.
func (b *Blocks) Size() int64 { return b.size }

// Peek reads a piece that is here; ok is false when it has to be waited for. Either
// way what the reader will want next is fetched.
func (b *Blocks) Peek(p []byte, off int64) (n int, ok bool, err error) {
	if off >= b.size {
		return 0, true, nil
	}
	p = p[:min(int64(len(p)), b.size-off)]
	to := off + int64(len(p))
	b.follow(off, to)
	b.mu.Lock()
	ok = b.missingLocked(off, to) < 0
	b.mu.Unlock()
	if ok {
		n, err = b.r.ReadAt(p, off)
	}
	return n, ok, err
}

// Read waits for a piece that Peek did not have. Errors match
// object.ErrPrecondition when the object was replaced or removed before this piece
// was read, berth.ErrUnavailable, or os.ErrClosed after Close.
func (b *Blocks) Read(ctx context.Context, p []byte, off int64) (int, error) {
	p = p[:min(int64(len(p)), b.size-off)]
	err := b.need(ctx, off, off+int64(len(p)))
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return b.readThrough(ctx, p, off)
	case err != nil:
		return 0, err
	}
	return b.r.ReadAt(p, off)
}

// follow notes where a reader is and has what he will read next fetched, the more
// the longer he reads in order.
func (b *Blocks) follow(off, to int64) {
	b.mu.Lock()
	i := slices.IndexFunc(b.streams, func(s stream) bool { return off >= s.next-streamSlack && off <= s.next+streamSlack })
	var s stream
	switch {
	case i >= 0:
		s = b.streams[i]
		s.next, s.window = max(s.next, to), max(s.window, streamStart)
		b.streams = slices.Delete(b.streams, i, i+1)
	case off == 0:
		s = stream{next: to, window: streamStart}
	default:
		s = stream{next: to}
	}
	if len(b.streams) == maxStreams {
		b.streams = slices.Delete(b.streams, 0, 1) // who read longest ago
	}
	due := s.window > 0 && s.ahead < b.size && s.ahead-s.next <= max(s.window/2, s.window-spanBytes)
	if due && s.ahead > 0 {
		s.window = min(2*s.window, streamMost)
	}
	from, upTo := max(s.ahead, s.next), min(s.next+s.window, b.size)
	b.streams = append(b.streams, s)
	b.mu.Unlock()
	if !due || from >= upTo {
		return
	}
	// What he waits for himself is requested first.
	b.demand(off, to)
	reached := b.ahead(from, upTo)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.streams {
		if b.streams[i].next == s.next {
			b.streams[i].ahead = max(b.streams[i].ahead, reached)
		}
	}
}

// demand has the first piece that is missing in a range requested, whatever else
// is under way.
func (b *Blocks) demand(from, to int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.missingLocked(from, to); at >= 0 && b.gone == nil {
		b.coverLocked(at, to)
	}
}

// readThrough reads a piece that the disk has no room for.
func (b *Blocks) readThrough(ctx context.Context, p []byte, off int64) (int, error) {
	b.mu.Lock()
	obj := b.obj
	b.mu.Unlock()
	body, _, err := b.s.store.Get(ctx, obj.Key, object.GetOptions{Offset: off, Length: int64(len(p)), IfMatch: obj.ETag})
	if err != nil {
		return 0, err
	}
	defer body.Close()
	n, err := io.ReadFull(body, p)
	if err != nil {
		return 0, fmt.Errorf("cannot read object %q: %w", obj.Key, err)
	}
	return n, nil
}
