package sync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"syscall"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

// A span is one request under way.
type span struct {
	from, to int64 // multiples of grain, or the end
	at       int64 // up to there it has come
	done     bool
	err      error
}

const (
	needTries  = 3  // of a piece that breaks off
	aheadSpans = 8  // requests for what nobody waits for yet, of one object
	allSpans   = 32 // and of all objects
)

// need returns when the pieces from one offset to another are here. Errors match
// object.ErrPrecondition when the object is not there any more, or
// berth.ErrUnavailable.
func (b *Blocks) need(ctx context.Context, from, to int64) error {
	var sp *span // the request that is waited for
	for try := 0; ; {
		changed := b.changed.wait()
		b.mu.Lock()
		missing, err := b.missingLocked(from, to), b.gone
		if err == nil && missing >= 0 && sp != nil && sp.done {
			switch {
			case errors.Is(sp.err, context.Canceled) && b.ctx.Err() == nil:
				// It was of readers that have gone.
			case errors.Is(sp.err, berth.ErrUnavailable) && try < needTries-1:
				try++
			default:
				err = sp.err
			}
		}
		if err == nil && missing >= 0 {
			sp = b.coverLocked(missing, to)
		}
		b.mu.Unlock()
		switch {
		case missing < 0:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// missingLocked returns the first offset in a range whose grain is not here, -1
// when all are.
func (b *Blocks) missingLocked(from, to int64) int64 {
	for at := from - from%grain; at < to; at += grain {
		if i := at / grain; b.have[i/64]&(1<<(i%64)) == 0 {
			return at
		}
	}
	return -1
}

// coverLocked returns the request under way for the grain at an offset; if there is
// none it is made, for what follows up to to as well.
func (b *Blocks) coverLocked(at, to int64) *span {
	if sp := b.flyingLocked(at); sp != nil {
		return sp
	}
	return b.startLocked(at, to)
}

func (b *Blocks) flyingLocked(at int64) *span {
	for _, sp := range b.spans {
		if at >= sp.from && at < sp.to {
			return sp
		}
	}
	return nil
}

// startLocked requests what is missing from the grain at an offset on, up to to
// or what is here or under way.
func (b *Blocks) startLocked(at, to int64) *span {
	end := at + grain
	for end < to && end-at < spanBytes && b.missingLocked(end, end+1) == end && b.flyingLocked(end) == nil {
		end += grain
	}
	sp := &span{from: at, at: at, to: min(end, b.obj.Size)}
	b.spans = append(b.spans, sp)
	t := &b.s.blocks
	t.running.Add(1)
	t.flying.Add(1)
	ctx, obj, paid := b.ctx, b.obj, b.paid
	go func() {
		defer t.running.Done()
		err := error(syscall.ENOSPC)
		if paid || b.s.space(sp.to-sp.from) {
			err = withoutPanic(ctx, func(ctx context.Context) error { return b.fetch(ctx, obj, sp) })
		}
		t.flying.Add(-1)
		b.end(obj, sp, err)
	}()
	return sp
}

// ahead has what is missing of a range fetched without waiting, as far as the
// bounds on requests allow, and returns how far that is.
func (b *Blocks) ahead(from, to int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	for at := from; ; {
		if at = b.missingLocked(at, to); at < 0 {
			return to
		}
		sp := b.flyingLocked(at)
		if sp == nil {
			if b.gone != nil || len(b.spans) >= aheadSpans || b.s.blocks.flying.Load() >= allSpans {
				return at
			}
			sp = b.startLocked(at, to)
		}
		if at = sp.to; at >= to {
			return to
		}
	}
}

// grains are the buffers of requests.
var grains = sync.Pool{New: func() any { return new([grain]byte) }}

// fetch makes the request of a span and writes what comes to the temp, leaving
// holes where there are only zeros.
func (b *Blocks) fetch(ctx context.Context, obj index.Remote, sp *span) error {
	body, info, err := b.s.store.Get(ctx, obj.Key, object.GetOptions{Offset: sp.from, Length: sp.to - sp.from, IfMatch: obj.ETag})
	if err != nil {
		return err
	}
	defer body.Close()
	if info.Size != obj.Size {
		return fmt.Errorf("cannot get object %q: it has %d bytes, not %d: %w", obj.Key, info.Size, obj.Size, object.ErrPrecondition)
	}
	b.s.reached()
	buf := grains.Get().(*[grain]byte)
	defer grains.Put(buf)
	for at := sp.from; at < sp.to; {
		piece := buf[:min(grain, sp.to-at)]
		if _, err := io.ReadFull(body, piece); err != nil {
			return fmt.Errorf("cannot read object %q: %w", obj.Key, err)
		}
		if !allZero(piece) {
			if _, err := b.w.WriteAt(piece, at); err != nil {
				return fmt.Errorf("cannot keep a piece of %q: %w", obj.Key, err)
			}
		}
		at += int64(len(piece))
		b.landed(sp, at)
	}
	return nil
}

// landed notes that a span has come up to an offset.
func (b *Blocks) landed(sp *span, at int64) {
	b.mu.Lock()
	if i := sp.at / grain; b.have[i/64]&(1<<(i%64)) == 0 {
		b.have[i/64] |= 1 << (i % 64)
		b.left--
	}
	sp.at = at
	b.mu.Unlock()
	b.changed.notify()
}

// end notes that a request is over, and what it says of the object. The last
// piece makes the content whole.
func (b *Blocks) end(obj index.Remote, sp *span, err error) {
	lost := errors.Is(err, object.ErrPrecondition) || errors.Is(err, fs.ErrNotExist)
	var other index.Remote
	if lost {
		if other, lost, _ = b.elsewhere(obj); !lost {
			err = fmt.Errorf("%w: the object has another key now", berth.ErrUnavailable)
		}
	}
	b.mu.Lock()
	sp.done, sp.err = true, err
	b.spans = slices.DeleteFunc(b.spans, func(o *span) bool { return o == sp })
	switch {
	case lost && b.gone == nil:
		b.gone = fmt.Errorf("cannot read object %q: %w", obj.Key, object.ErrPrecondition)
	case other.Key != "":
		b.obj = other
	}
	whole := b.left == 0 && len(b.spans) == 0 && b.gone == nil
	b.mu.Unlock()
	if whole {
		err := b.adopt()
		b.mu.Lock()
		b.adopted, b.adoptErr = true, err
		b.mu.Unlock()
	}
	b.changed.notify()
	if lost && b.s.ctx.Err() == nil {
		if err := b.s.followHolder(b.s.ctx, obj); err != nil {
			b.s.failed(err)
		}
	}
}

// elsewhere looks for another object that has the same generation, as after a
// rename. lost is true when there is none.
func (b *Blocks) elsewhere(obj index.Remote) (other index.Remote, lost bool, err error) {
	held, err := b.s.db.Holders(b.ino)
	for _, r := range held {
		if r.Gen == obj.Gen && r.Size == obj.Size && r.ETag != "" && r.Intent.Gen == 0 && (r.Key != obj.Key || r.ETag != obj.ETag) {
			return r, false, nil
		}
	}
	return index.Remote{}, true, err
}
