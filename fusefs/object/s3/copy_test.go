package s3_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"testing"

	"berth/fusefs/object"
	"berth/fusefs/object/embedded/embeddedtest"
	"berth/fusefs/object/s3"
)

// TestCopyParts copies in parts, as is done above 5 GiB only.
func TestCopyParts(t *testing.T) {
	o := embeddedtest.Start(t, t.TempDir())
	s, err := s3.New(s3.Options{URL: o.URL, Bucket: o.Bucket, AccessKey: o.AccessKey, SecretKey: o.SecretKey, PartSize: 5 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	data := make([]byte, 11<<20)
	rand.Read(data)
	meta := map[string]string{"k": "\u00fc"}
	if _, err := s.Put(ctx, "a +\u00fc", bytes.NewReader(data), int64(len(data)), object.PutOptions{Metadata: meta, ContentType: "text/x"}); err != nil {
		t.Fatal(err)
	}
	from, err := s.Head(ctx, "a +\u00fc")
	if err != nil {
		t.Fatal(err)
	}
	info, err := s3.CopyParts(s, ctx, "copy", from, object.CopyOptions{SourceETag: from.ETag})
	if err != nil {
		t.Fatal(err)
	}
	r, got, err := s.Get(ctx, "copy", object.GetOptions{IfMatch: info.ETag})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	copied, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(copied, data) || got.Metadata["k"] != meta["k"] || got.ContentType != "text/x" {
		t.Errorf("got %d bytes and %+v, %v", len(copied), got, err)
	}
	if _, err := s3.CopyParts(s, ctx, "other", from, object.CopyOptions{SourceETag: "e"}); !errors.Is(err, object.ErrPrecondition) {
		t.Errorf("another generation: got %v", err)
	}
	from.ETag = "0123456789abcdef0123456789abcdef"
	if _, err := s3.CopyParts(s, ctx, "other", from, object.CopyOptions{}); !errors.Is(err, object.ErrPrecondition) {
		t.Errorf("a source that changed meanwhile: got %v", err)
	}
	page, err := s.List(ctx, object.ListOptions{})
	if err != nil || len(page.Objects) != 2 {
		t.Errorf("list: got %+v, %v", page, err)
	}
}

func TestPartLayout(t *testing.T) {
	const part = 64 << 20
	for _, size := range []int64{0, 1, part, part + 1, 10 * part, 10000 * part, 10000*part + 1, 5 << 40} {
		partSize, n := s3.PartLayout(size, part)
		if n < 1 || n > 10000 || int64(n)*partSize < size || int64(n-1)*partSize > size {
			t.Errorf("%d bytes: %d parts of %d", size, n, partSize)
		}
	}
}
