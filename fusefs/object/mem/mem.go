// Package mem is an object.Store in memory, true to the contract, with faults
// that tests switch on: latency, errors, lost answers, calls that hang.
package mem

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/fusefs/object"
)

// Store keeps objects in memory. The zero Store is empty and ready for use.
type Store struct {
	// Now is the store's clock; nil = time.Now. Set it before the first call.
	Now func() time.Time

	mu      sync.Mutex // protects what follows
	objects map[string]stored
	faults  []*Fault
	calls   map[Op]int
}

// stored is one generation; its fields never change.
type stored struct {
	data []byte
	info object.Info
}

var _ object.Composer = (*Store)(nil)

// Head implements object.Store.
func (s *Store) Head(ctx context.Context, key string) (object.Info, error) {
	if err := object.CheckKey(key); err != nil {
		return object.Info{}, err
	}
	var info object.Info
	err := s.call(ctx, OpHead, key, func() error {
		obj, ok := s.objects[key]
		if !ok {
			return notExist("head", key)
		}
		info = obj.copyInfo()
		return nil
	})
	return info, err
}

// Get implements object.Store.
func (s *Store) Get(ctx context.Context, key string, o object.GetOptions) (io.ReadCloser, object.Info, error) {
	if err := object.CheckGet(key, o); err != nil {
		return nil, object.Info{}, err
	}
	var info object.Info
	var data []byte
	err := s.call(ctx, OpGet, key, func() error {
		obj, ok := s.objects[key]
		switch {
		case !ok:
			return notExist("get", key)
		case o.IfMatch != "" && o.IfMatch != obj.info.ETag:
			return fmt.Errorf("cannot get object %q: %w", key, object.ErrPrecondition)
		}
		size := int64(len(obj.data))
		if (o.Offset > 0 || o.Length > 0) && o.Offset >= size {
			return fmt.Errorf("cannot get object %q: offset %d of %d bytes: %w", key, o.Offset, size, fs.ErrInvalid)
		}
		data = obj.data[o.Offset:]
		if o.Length > 0 && o.Length < int64(len(data)) {
			data = data[:o.Length]
		}
		info = obj.copyInfo()
		return nil
	})
	if err != nil {
		return nil, object.Info{}, err
	}
	return s.reader(ctx, key, data), info, nil
}

// Put implements object.Store.
func (s *Store) Put(ctx context.Context, key string, body io.ReaderAt, size int64, o object.PutOptions) (object.Info, error) {
	if err := object.CheckPut(key, size, o); err != nil {
		return object.Info{}, err
	}
	data := make([]byte, size)
	if n, err := body.ReadAt(data, 0); int64(n) < size {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return object.Info{}, fmt.Errorf("cannot put object %q: the body ended after %d of %d bytes: %w", key, n, size, err)
	}
	var info object.Info
	err := s.call(ctx, OpPut, key, func() error {
		current, ok := s.objects[key]
		if o.IfNoneMatch && ok || o.IfMatch != "" && current.info.ETag != o.IfMatch {
			return fmt.Errorf("cannot put object %q: %w", key, object.ErrPrecondition)
		}
		info = s.storeLocked(key, data, o.Metadata, o.ContentType)
		return nil
	})
	return info, err
}

// Compose implements object.Composer.
func (s *Store) Compose(ctx context.Context, key string, body io.ReaderAt, size int64, o object.ComposeOptions) (object.Info, error) {
	if err := object.CheckCompose(key, size, o); err != nil {
		return object.Info{}, err
	}
	data := make([]byte, size)
	at := int64(0)
	for _, r := range append(o.Keep[:len(o.Keep):len(o.Keep)], object.Range{From: size, To: size}) {
		if n, err := body.ReadAt(data[at:r.From], at); int64(n) < r.From-at {
			return object.Info{}, fmt.Errorf("cannot compose object %q: %w", key, err)
		}
		at = r.To
	}
	var info object.Info
	err := s.call(ctx, OpCompose, key, func() error {
		from, ok := s.objects[o.Source]
		current, exists := s.objects[key]
		if !ok || from.info.ETag != o.SourceETag || o.IfNoneMatch && exists || o.IfMatch != "" && current.info.ETag != o.IfMatch {
			return fmt.Errorf("cannot compose object %q: %w", key, object.ErrPrecondition)
		}
		for _, r := range o.Keep {
			if r.To > int64(len(from.data)) {
				return fmt.Errorf("cannot compose object %q: the source ends before %d: %w", key, r.To, fs.ErrInvalid)
			}
			copy(data[r.From:r.To], from.data[r.From:r.To])
		}
		info = s.storeLocked(key, data, o.Metadata, o.ContentType)
		return nil
	})
	return info, err
}

// Copy implements object.Store.
func (s *Store) Copy(ctx context.Context, dst, src string, o object.CopyOptions) (object.Info, error) {
	if err := object.CheckCopy(dst, src, o); err != nil {
		return object.Info{}, err
	}
	var info object.Info
	err := s.call(ctx, OpCopy, dst, func() error {
		from, ok := s.objects[src]
		switch {
		case !ok:
			return notExist("copy", src)
		case o.SourceETag != "" && o.SourceETag != from.info.ETag:
			return fmt.Errorf("cannot copy object %q: %w", src, object.ErrPrecondition)
		}
		metadata, contentType := o.Metadata, o.ContentType
		if metadata == nil {
			metadata, contentType = from.info.Metadata, from.info.ContentType
		}
		info = object.Info{Key: dst, ETag: s.storeLocked(dst, from.data, metadata, contentType).ETag}
		return nil
	})
	return info, err
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, key, ifMatch string) error {
	if err := object.CheckKey(key); err != nil {
		return err
	}
	return s.call(ctx, OpDelete, key, func() error {
		current, ok := s.objects[key]
		if ok && ifMatch != "" && current.info.ETag != ifMatch {
			return fmt.Errorf("cannot delete object %q: %w", key, object.ErrPrecondition)
		}
		delete(s.objects, key)
		return nil
	})
}

// List implements object.Store.
func (s *Store) List(ctx context.Context, o object.ListOptions) (object.Page, error) {
	if err := object.CheckList(o); err != nil {
		return object.Page{}, err
	}
	if o.Max == 0 {
		o.Max = object.MaxPage
	}
	var page object.Page
	err := s.call(ctx, OpList, o.Prefix, func() error {
		page = s.pageLocked(o)
		return nil
	})
	return page, err
}

// pageLocked makes one page. A token of Next is the last key or rolled-up prefix.
func (s *Store) pageLocked(o object.ListOptions) object.Page {
	after, isToken := strings.CutPrefix(o.After, object.PageToken)
	var page object.Page
	last := ""
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, o.Prefix) || key <= after {
			continue
		}
		entry, rolled := key, false
		if i := strings.Index(key[len(o.Prefix):], "/"); o.Delimiter != "" && i >= 0 {
			entry, rolled = key[:len(o.Prefix)+i+1], true
		}
		if rolled && (entry == last || isToken && entry == after) {
			continue
		}
		if len(page.Objects)+len(page.Prefixes) == o.Max {
			page.Next = object.PageToken + last
			return page
		}
		last = entry
		if rolled {
			page.Prefixes = append(page.Prefixes, entry)
			continue
		}
		info := s.objects[key].info
		info.Metadata, info.ContentType = nil, ""
		page.Objects = append(page.Objects, info)
	}
	return page
}

// storeLocked makes data the current generation of the key. The Info returned
// has no LastModified, as the answer of a real store to a PUT has none.
func (s *Store) storeLocked(key string, data []byte, metadata map[string]string, contentType string) object.Info {
	if contentType == "" {
		contentType = object.DefaultContentType
	}
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	sum := md5.Sum(data)
	obj := stored{data, object.Info{
		Key:          key,
		Size:         int64(len(data)),
		ETag:         hex.EncodeToString(sum[:]),
		LastModified: now().UTC().Truncate(time.Second),
		Metadata:     maps.Clone(metadata),
		ContentType:  contentType,
	}}
	if obj.info.Metadata == nil {
		obj.info.Metadata = map[string]string{}
	}
	if s.objects == nil {
		s.objects = make(map[string]stored)
	}
	s.objects[key] = obj
	info := obj.copyInfo()
	info.LastModified = time.Time{}
	return info
}

func (o stored) copyInfo() object.Info {
	info := o.info
	info.Metadata = maps.Clone(info.Metadata)
	return info
}

func notExist(verb, key string) error {
	return fmt.Errorf("cannot %s object %q: %w", verb, key, fs.ErrNotExist)
}

// reader returns the body of a Get, subject to the faults of OpRead.
func (s *Store) reader(ctx context.Context, key string, data []byte) io.ReadCloser {
	return &memReader{data: bytes.NewReader(data), ctx: ctx, key: key, store: s}
}

// memReader has no WriteTo: each piece must pass through Read and its faults.
type memReader struct {
	data  *bytes.Reader
	ctx   context.Context
	key   string
	store *Store
}

func (r *memReader) Read(p []byte) (int, error) {
	var n int
	var end error
	err := r.store.call(r.ctx, OpRead, r.key, func() error {
		n, end = r.data.Read(p)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, end
}

func (r *memReader) Close() error { return nil }
