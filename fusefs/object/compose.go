package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// A Composer is a Store that can make a large object of bytes that are sent and of
// others that it has already in an earlier generation.
type Composer interface {
	Store

	// Compose is Put, but that of the body only the bytes outside Keep need to be
	// sent: the source has those in Keep at the same offsets. It can send more
	// than needed. The body is readable everywhere. If the source is not the one
	// named any more the error is ErrPrecondition; if the store cannot do it, or
	// not with so many pieces, errors.ErrUnsupported. Either way nothing is visible.
	Compose(ctx context.Context, key string, body io.ReaderAt, size int64, o ComposeOptions) (Info, error)
}

// ComposeOptions are the condition and attributes of a Compose, and what to keep.
type ComposeOptions struct {
	PutOptions
	Source     string  // key of an object, maybe the one that is put
	SourceETag string  // its ETag
	Keep       []Range // in order, not touching; each at least MinPart long, as is what lies between two
}

// A Range is a piece of an object.
type Range struct{ From, To int64 }

// MinPart is the least that a store takes as a part of an object, except the last.
const MinPart = 5 << 20

// CheckCompose returns an error matching fs.ErrInvalid for arguments that no store
// takes.
func CheckCompose(key string, size int64, o ComposeOptions) error {
	bad := func(why string) error { return fmt.Errorf("cannot compose object %q: %s: %w", key, why, fs.ErrInvalid) }
	if err := CheckPut(key, size, o.PutOptions); err != nil {
		return err
	}
	if err := CheckKey(o.Source); err != nil {
		return err
	}
	if o.SourceETag == "" || len(o.Keep) == 0 {
		return bad("there is nothing to keep of a certain object")
	}
	at := int64(0)
	for i, r := range o.Keep {
		switch {
		case r.From < at || i > 0 && r.From == at || r.To <= r.From || r.To > size:
			return bad("the ranges are not in order")
		case r.From-at > 0 && r.From-at < MinPart, r.To-r.From < MinPart && r.To < size:
			return bad("a range is too short")
		}
		at = r.To
	}
	return nil
}

// Compose has a store compose an object if it can; otherwise the error matches
// errors.ErrUnsupported.
func Compose(ctx context.Context, s Store, key string, body io.ReaderAt, size int64, o ComposeOptions) (Info, error) {
	c, ok := s.(Composer)
	if !ok {
		return Info{}, fmt.Errorf("cannot compose object %q: %w", key, errors.ErrUnsupported)
	}
	return c.Compose(ctx, key, body, size, o)
}

// Compose implements Composer, as far as the store below can. The store may move
// all that is kept before it answers.
func (s *deadlineStore) Compose(ctx context.Context, key string, body io.ReaderAt, size int64, o ComposeOptions) (Info, error) {
	limit := s.total(size)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooSlow("the object was not composed", limit))
	defer cancel()
	return Compose(ctx, s.s, key, body, size, o)
}

var _ Composer = (*deadlineStore)(nil)
