package storetest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"

	"berth/fusefs/object"
)

// A picky is a body whose pieces in certain ranges are not to be read.
type picky struct {
	*bytes.Reader
	t      *testing.T
	forbid []object.Range
}

func (p picky) ReadAt(b []byte, off int64) (int, error) {
	for _, r := range p.forbid {
		if off < r.To && off+int64(len(b)) > r.From {
			p.t.Errorf("bytes %d to %d were read, %d to %d are kept", off, off+int64(len(b)), r.From, r.To)
		}
	}
	return p.Reader.ReadAt(b, off)
}

func testCompose(t *testing.T, s object.Store, _ Limits) {
	if _, ok := s.(object.Composer); !ok {
		return // the store has no such ability
	}
	const block = object.MinPart
	old := make([]byte, 3*block+1000)
	rand.NewChaCha8([32]byte{7}).Read(old)
	changed := func(at ...int) []byte {
		out := bytes.Clone(old)
		for _, i := range at {
			copy(out[i:], "changed")
		}
		return out
	}
	for _, c := range []struct {
		name string
		body []byte
		keep []object.Range
	}{
		{"middle", changed(block + 5), []object.Range{{From: 0, To: block}, {From: 2 * block, To: 3*block + 1000}}},
		{"begin", changed(0), []object.Range{{From: block, To: 3*block + 1000}}},
		{"end", changed(3 * block), []object.Range{{From: 0, To: 3 * block}}},
		{"appended", append(changed(), "more"...), []object.Range{{From: 0, To: 3 * block}}},
		{"cut", changed()[:2*block+7], []object.Range{{From: 0, To: 2 * block}}},
		{"all", changed(), []object.Range{{From: 0, To: 3*block + 1000}}},
	} {
		put(t, s, "dir/c", string(old), object.PutOptions{})
		etag := head(t, s, "dir/c").ETag
		o := object.ComposeOptions{Source: "dir/c", SourceETag: etag, Keep: c.keep,
			PutOptions: object.PutOptions{IfMatch: etag, Metadata: map[string]string{"m": c.name}, ContentType: "text/x"}}
		info, err := object.Compose(t.Context(), s, "dir/c", picky{bytes.NewReader(c.body), t, c.keep}, int64(len(c.body)), o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		now := head(t, s, "dir/c")
		r, _, err := s.Get(t.Context(), "dir/c", object.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(c.body))
		_, err = io.ReadFull(r, got)
		r.Close()
		if err != nil || !bytes.Equal(got, c.body) || now.ETag != info.ETag || now.Size != int64(len(c.body)) || now.Metadata["m"] != c.name || now.ContentType != "text/x" {
			t.Errorf("%s: got %v, %+v, answered %+v", c.name, err, now, info)
		}
	}
	testComposeConditions(t, s, old)
}

func testComposeConditions(t *testing.T, s object.Store, old []byte) {
	put(t, s, "dir/c", string(old), object.PutOptions{})
	etag := head(t, s, "dir/c").ETag
	size := int64(len(old))
	keep := []object.Range{{From: 0, To: object.MinPart}}
	compose := func(key string, o object.ComposeOptions) error {
		o.Keep = keep
		_, err := object.Compose(t.Context(), s, key, bytes.NewReader(old), size, o)
		return err
	}
	for name, c := range map[string]struct {
		key  string
		o    object.ComposeOptions
		want error
	}{
		"another source":    {"dir/c", object.ComposeOptions{Source: "dir/c", SourceETag: "0123456789abcdef0123456789abcdef"}, object.ErrPrecondition},
		"no source":         {"dir/c", object.ComposeOptions{Source: "dir/none", SourceETag: etag}, object.ErrPrecondition},
		"another object":    {"dir/c", object.ComposeOptions{Source: "dir/c", SourceETag: etag, PutOptions: object.PutOptions{IfMatch: "0123456789abcdef0123456789abcdef"}}, object.ErrPrecondition},
		"one that is there": {"dir/c", object.ComposeOptions{Source: "dir/c", SourceETag: etag, PutOptions: object.PutOptions{IfNoneMatch: true}}, object.ErrPrecondition},
		"no ETag":           {"dir/c", object.ComposeOptions{Source: "dir/c"}, fs.ErrInvalid},
		"a new key":         {"dir/new", object.ComposeOptions{Source: "dir/c", SourceETag: etag, PutOptions: object.PutOptions{IfNoneMatch: true}}, nil},
	} {
		if err := compose(c.key, c.o); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if a, b := head(t, s, "dir/c"), head(t, s, "dir/new"); a.ETag != etag || b.Size != size {
		t.Errorf("got %+v and %+v, want the first as it was and a copy", a, b)
	}
	broken := brokenAt{}
	_, err := object.Compose(t.Context(), s, "dir/c", broken, size, object.ComposeOptions{Source: "dir/c", SourceETag: etag, Keep: keep})
	if err == nil {
		t.Error("a body that cannot be read: got no error")
	}
}

type brokenAt struct{}

func (brokenAt) ReadAt([]byte, int64) (int, error) { return 0, errors.New("broken") }

func head(t *testing.T, s object.Store, key string) object.Info {
	t.Helper()
	info, err := s.Head(t.Context(), key)
	if err != nil {
		t.Fatalf("head %q: %v", key, err)
	}
	return info
}
