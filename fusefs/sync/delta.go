package sync

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"berth/fusefs/index"
	"berth/fusefs/object"
)

// deltaFrom is the size from which a file is uploaded as the difference to what the
// bucket has of it.
const deltaFrom = 64 << 20

// digest returns the digests of content block by block.
func digest(ctx context.Context, body io.ReaderAt, size int64) ([]byte, error) {
	sums := make([]byte, 0, (size/index.DigestBlock+1)*index.DigestSize)
	buf := make([]byte, 1<<20)
	hash := sha256.New()
	for at := int64(0); at < size; at += index.DigestBlock {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		hash.Reset()
		block := io.NewSectionReader(body, at, min(index.DigestBlock, size-at))
		n, err := io.CopyBuffer(struct{ io.Writer }{hash}, struct{ io.Reader }{block}, buf)
		if err == nil && n < block.Size() {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("cannot digest content: %w", err)
		}
		sums = append(sums, hash.Sum(nil)[:index.DigestSize]...)
	}
	return sums, nil
}

// A delta is what is known of a large upload block by block.
type delta struct {
	now  index.Digests  // what is uploaded; no Sums = not known
	keep []object.Range // of it the object under the key has
}

// delta compares what is about to be uploaded with the object under the key. It is
// empty for a file that goes up whole.
func (s *Syncer) delta(ctx context.Context, n *index.Inode, r index.Remote, src *source) (delta, error) {
	if !n.IsFile() || n.Size < deltaFrom {
		return delta{}, nil
	}
	d := delta{now: index.Digests{Gen: gen(n), Size: n.Size}}
	before, ok, err := s.db.Digests(n.Ino)
	if err != nil {
		return delta{}, err
	}
	if d.now.Sums, err = digest(ctx, src, n.Size); err != nil {
		return delta{}, err
	}
	if ok && r.ETag != "" && r.Ino == n.Ino && r.Gen == before.Gen {
		d.keep = unchanged(before, d.now)
	}
	return d, nil
}

// unchanged returns the ranges in which two generations are the same.
func unchanged(a, b index.Digests) []object.Range {
	var keep []object.Range
	blocks := (min(a.Size, b.Size) + index.DigestBlock - 1) / index.DigestBlock
	for i := range blocks {
		at := i * index.DigestBlock
		end := min(at+index.DigestBlock, b.Size)
		sameLength := end == min(at+index.DigestBlock, a.Size)
		if sum := a.Sum(i); !sameLength || sum == nil || !bytes.Equal(sum, b.Sum(i)) {
			continue
		}
		if last := len(keep) - 1; last >= 0 && keep[last].To == at {
			keep[last].To = end
		} else {
			keep = append(keep, object.Range{From: at, To: end})
		}
	}
	return keep
}

// sameContent says whether the object under a key differs from a large file in its
// attributes only.
func sameContent(n *index.Inode, r index.Remote) bool {
	return n.IsFile() && n.Size >= deltaFrom && r.ETag != "" && r.Ino == n.Ino && r.Gen == gen(n) && r.Size == n.Size
}

// put sends a body, or only what the object under the key does not have of it.
func (s *Syncer) put(ctx context.Context, r index.Remote, src io.ReaderAt, size int64, o object.PutOptions, keep []object.Range) (object.Info, error) {
	if len(keep) > 0 {
		info, err := object.Compose(ctx, s.store, r.Key, src, size,
			object.ComposeOptions{PutOptions: o, Source: r.Key, SourceETag: r.ETag, Keep: keep})
		if !errors.Is(err, errors.ErrUnsupported) {
			return info, err
		}
	}
	return s.store.Put(ctx, r.Key, src, size, o)
}

// noteDigests keeps the digests of what the bucket has under a key now.
func (s *Syncer) noteDigests(ino index.Ino, key string, d index.Digests) error {
	if len(d.Sums) == 0 {
		return nil
	}
	return s.db.Update(func(b *index.Batch) error {
		r, ok, err := s.db.Remote(key)
		if err == nil && ok && r.Ino == ino && r.Gen == d.Gen && r.ETag != "" {
			b.PutDigests(ino, d)
		}
		return err
	})
}

// Digest is called before a file whose content is here is opened for writing. Of a
// large one that is in the bucket it notes how its blocks look, so that only those
// that will differ have to be uploaded.
func (s *Syncer) Digest(ctx context.Context, ino index.Ino) error {
	n, err := s.db.Inode(ino)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !n.IsFile() || n.Remote || n.Size < deltaFrom {
		return err
	}
	if d, ok, err := s.db.Digests(ino); err != nil || ok && d.Gen == gen(&n) {
		return err
	}
	if _, ok, err := s.holder(&n, ""); err != nil || !ok {
		return err
	}
	return s.digests.do(ctx, s.ctx, ino, func(ctx context.Context) error { return s.digestFile(ctx, &n) })
}

func (s *Syncer) digestFile(ctx context.Context, n *index.Inode) error {
	src, err := s.source(n)
	if err != nil {
		return err
	}
	defer src.close()
	d := index.Digests{Gen: gen(n), Size: n.Size}
	if d.Sums, err = digest(ctx, src, n.Size); err != nil {
		return err
	}
	return s.db.Update(func(b *index.Batch) error {
		now, err := s.db.Inode(n.Ino)
		if err != nil {
			return err
		}
		// Nobody has been able to write to it meanwhile.
		if _, open, err := s.db.OpenMark(n.Ino); err != nil || open || now.Gen != n.Gen || now.Remote {
			return err
		}
		b.PutDigests(n.Ino, d)
		return nil
	})
}

// unread is the body of an upload of which the store has all.
type unread struct{}

func (unread) ReadAt([]byte, int64) (int, error) {
	return 0, errors.New("BUG: the content of an upload that keeps all was read")
}

// sendAttributes uploads a large file whose content is under the key already.
func (s *Syncer) sendAttributes(ctx context.Context, n *index.Inode, w want, r index.Remote, chain []index.Ino) (done bool, err error) {
	if err := s.announce(n, w, r); err != nil {
		return true, ignoreChanged(err)
	}
	info, err := object.Compose(ctx, s.store, w.key, unread{}, n.Size, object.ComposeOptions{
		PutOptions: object.PutOptions{IfMatch: r.ETag, Metadata: encodeMetadata(n, w.key, s.owner)},
		Source:     w.key, SourceETag: r.ETag, Keep: []object.Range{{To: n.Size}}})
	if errors.Is(err, errors.ErrUnsupported) {
		return false, s.dropIntent(w.key)
	}
	return true, s.answered(ctx, n, w, info, err, chain)
}
