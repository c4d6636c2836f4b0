package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/minio/minio-go/v7"

	"berth/fusefs/object"
)

var _ object.Composer = (*Store)(nil)

// copyPart is how much one request copies: several go on at a time, and each
// answers before long.
const copyPart = 1 << 30

// A piece is one part of a composed object.
type piece struct {
	object.Range
	kept bool // the source has it
}

// Compose implements object.Composer with copied and uploaded parts.
func (s *Store) Compose(ctx context.Context, key string, body io.ReaderAt, size int64, o object.ComposeOptions) (object.Info, error) {
	if err := object.CheckCompose(key, size, o); err != nil {
		return object.Info{}, err
	}
	pieces := s.pieces(size, o.Keep)
	if len(pieces) > maxParts {
		return object.Info{}, fmt.Errorf("cannot compose object %q: it has %d pieces: %w", key, len(pieces), errors.ErrUnsupported)
	}
	pinned := map[string]string{"x-amz-copy-source-if-match": quote(o.SourceETag)}
	up, err := s.inParts(ctx, key, len(pieces), putOptions(o.Metadata, o.ContentType), o.PutOptions,
		func(ctx context.Context, id string, i int) (minio.CompletePart, error) {
			p := pieces[i]
			if !p.kept {
				return s.sendPart(ctx, key, id, i, io.NewSectionReader(body, p.From, p.To-p.From))
			}
			part, err := s.core.CopyObjectPart(ctx, s.bucket, o.Source, s.bucket, key, id, i+1, p.From, p.To-p.From, pinned)
			if err != nil {
				err = sourceError(ctx, o.Source, err)
			}
			return part, err
		})
	switch {
	case errors.Is(err, object.ErrPrecondition), errors.Is(err, errors.ErrUnsupported):
		return object.Info{}, err
	case err != nil:
		return object.Info{}, s.putError(ctx, key, o.PutOptions, err)
	}
	return putInfo(key, size, up.ETag, up.VersionID, o.Metadata, o.ContentType), nil
}

// sourceError maps the error of copying a part: that the source is gone, or that
// the store cannot copy, says nothing about the object that is put.
func sourceError(ctx context.Context, source string, err error) error {
	mapped := mapError(ctx, "copy", source, err)
	switch {
	case errors.Is(mapped, fs.ErrNotExist):
		return fmt.Errorf("cannot copy object %q: %w: it is gone", source, object.ErrPrecondition)
	case errors.Is(mapped, errors.ErrUnsupported), errors.Is(mapped, object.ErrPrecondition):
		return mapped
	}
	return err
}

// pieces divides an object into parts: each range into equal ones that the store
// takes.
func (s *Store) pieces(size int64, keep []object.Range) []piece {
	var out []piece
	add := func(r object.Range, most int64, kept bool) {
		n := max((r.To-r.From)/most, 1) // so that none is smaller than most, unless the range is
		for i := range n {
			out = append(out, piece{object.Range{From: r.From + (r.To-r.From)*i/n, To: r.From + (r.To-r.From)*(i+1)/n}, kept})
		}
	}
	at := int64(0)
	for _, r := range keep {
		if r.From > at {
			add(object.Range{From: at, To: r.From}, s.partSize, false)
		}
		add(r, copyPart, true)
		at = r.To
	}
	if size > at {
		add(object.Range{From: at, To: size}, s.partSize, false)
	}
	return out
}
