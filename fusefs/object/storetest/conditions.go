package storetest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"berth/fusefs/object"
)

func testConditions(t *testing.T, s object.Store, _ Limits) {
	ctx := t.Context()
	try := func(key, body string, o object.PutOptions) error {
		_, err := s.Put(ctx, key, strings.NewReader(body), int64(len(body)), o)
		return err
	}
	wantErr(t, "If-Match on nothing", try("k", "0", object.PutOptions{IfMatch: "0123456789abcdef0123456789abcdef"}), object.ErrPrecondition, "k")
	first := put(t, s, "k", "1", object.PutOptions{IfNoneMatch: true})
	wantErr(t, "create over it", try("k", "2", object.PutOptions{IfNoneMatch: true}), object.ErrPrecondition, "k")
	second := put(t, s, "k", "2", object.PutOptions{IfMatch: first.ETag})
	wantErr(t, "replace what is gone", try("k", "3", object.PutOptions{IfMatch: first.ETag}), object.ErrPrecondition, "k")
	if got, _ := get(t, s, "k", object.GetOptions{IfMatch: second.ETag}); got != "2" {
		t.Errorf("content: got %q, want 2", got)
	}
	_, _, err := s.Get(ctx, "k", object.GetOptions{IfMatch: first.ETag})
	wantErr(t, "get of what is gone", err, object.ErrPrecondition, "k")
	wantErr(t, "delete of what is gone", s.Delete(ctx, "k", first.ETag), object.ErrPrecondition, "k")
	if got, _ := get(t, s, "k", object.GetOptions{}); got != "2" {
		t.Errorf("content after the delete that must not be: got %q, want 2", got)
	}
	if err := s.Delete(ctx, "k", second.ETag); err != nil {
		t.Errorf("delete of what is there: %v", err)
	}
	put(t, s, "k", "4", object.PutOptions{IfNoneMatch: true})
}

// testRaces lets many writers go for one key at once: of each round exactly one
// may win, and a conditional delete may never take the work of another.
func testRaces(t *testing.T, s object.Store, _ Limits) {
	const writers, rounds = 8, 10
	ctx := t.Context()
	current := ""
	for round := range rounds {
		etags := make([]string, writers)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				body := fmt.Sprintf("round %d writer %d", round, w)
				o := object.PutOptions{IfMatch: current, IfNoneMatch: current == ""}
				info, err := s.Put(ctx, "race", strings.NewReader(body), int64(len(body)), o)
				if err == nil {
					etags[w] = info.ETag
				} else if !errors.Is(err, object.ErrPrecondition) {
					t.Errorf("writer %d: %v", w, err)
				}
			})
		}
		wg.Wait()
		winners := strings.Fields(strings.Join(etags, " "))
		if len(winners) != 1 {
			t.Fatalf("round %d: %d writers won, want 1", round, len(winners))
		}
		current = winners[0]
	}
	for round := range rounds {
		info := put(t, s, "race", fmt.Sprintf("old %d", round), object.PutOptions{})
		var putErr, deleteErr error
		var wg sync.WaitGroup
		wg.Go(func() {
			_, putErr = s.Put(ctx, "race", strings.NewReader("new"), 3, object.PutOptions{IfMatch: info.ETag})
		})
		wg.Go(func() { deleteErr = s.Delete(ctx, "race", info.ETag) })
		wg.Wait()
		_, headErr := s.Head(ctx, "race")
		exists := !errors.Is(headErr, fs.ErrNotExist)
		if exists != (putErr == nil) || (putErr == nil) == (deleteErr == nil) {
			t.Fatalf("round %d: put says %v, delete says %v, the object exists: %v", round, putErr, deleteErr, exists)
		}
	}
}

func testRange(t *testing.T, s object.Store, _ Limits) {
	info := put(t, s, "r", "0123456789", object.PutOptions{})
	for _, c := range []struct {
		offset, length int64
		want           string
	}{
		{0, 0, "0123456789"}, {0, 3, "012"}, {4, 0, "456789"}, {4, 3, "456"}, {9, 1, "9"}, {8, 100, "89"}, {0, 10, "0123456789"},
	} {
		got, from := get(t, s, "r", object.GetOptions{Offset: c.offset, Length: c.length, IfMatch: info.ETag})
		if got != c.want || from.Size != 10 || from.ETag != info.ETag {
			t.Errorf("%d bytes at %d: got %q and %+v, want %q", c.length, c.offset, got, from, c.want)
		}
	}
	put(t, s, "empty", "", object.PutOptions{})
	for _, c := range []struct {
		key            string
		offset, length int64
	}{{"r", 10, 0}, {"r", 10, 1}, {"r", 1000, 5}, {"empty", 0, 1}, {"empty", 1, 0}} {
		_, _, err := s.Get(t.Context(), c.key, object.GetOptions{Offset: c.offset, Length: c.length})
		wantErr(t, fmt.Sprintf("%d bytes at %d of %s", c.length, c.offset, c.key), err, fs.ErrInvalid, c.key)
	}
	if got, _ := get(t, s, "empty", object.GetOptions{}); got != "" {
		t.Errorf("empty object: got %q", got)
	}
}

func testCopy(t *testing.T, s object.Store, _ Limits) {
	ctx := t.Context()
	meta := map[string]string{"a": "1", "b": "\u00fc"}
	src := put(t, s, "dir/source +%41\u00fc", "body", object.PutOptions{Metadata: meta, ContentType: "text/x"})
	info, err := s.Copy(ctx, "to/keep", src.Key, object.CopyOptions{SourceETag: src.ETag})
	if err != nil {
		t.Fatal(err)
	}
	if info.Key != "to/keep" || info.ETag == "" {
		t.Errorf("copy: got %+v", info)
	}
	got, head := get(t, s, "to/keep", object.GetOptions{IfMatch: info.ETag})
	if got != "body" || head.ContentType != "text/x" {
		t.Errorf("copy: got %q of type %q", got, head.ContentType)
	}
	wantMetadata(t, "copy", head.Metadata, meta)

	other := map[string]string{"c": "3"}
	if _, err := s.Copy(ctx, "to/new", src.Key, object.CopyOptions{Metadata: other, ContentType: "text/y"}); err != nil {
		t.Fatal(err)
	}
	got, head = get(t, s, "to/new", object.GetOptions{})
	if got != "body" || head.ContentType != "text/y" {
		t.Errorf("copy with metadata: got %q of type %q", got, head.ContentType)
	}
	wantMetadata(t, "copy with metadata", head.Metadata, other)

	_, err = s.Copy(ctx, "to/x", "dir/none", object.CopyOptions{})
	wantErr(t, "copy of nothing", err, fs.ErrNotExist, "dir/none")
	_, err = s.Copy(ctx, "to/x", src.Key, object.CopyOptions{SourceETag: "0123456789abcdef0123456789abcdef"})
	wantErr(t, "copy of another generation", err, object.ErrPrecondition, "source")
	if got := keys(t, s, "to/"); strings.Join(got, " ") != "to/keep to/new" {
		t.Errorf("after copies: got %q", got)
	}
}

func testDelete(t *testing.T, s object.Store, _ Limits) {
	ctx := t.Context()
	put(t, s, "d/a", "x", object.PutOptions{})
	for _, key := range []string{"d/a", "d/a", "none", "d/none", "d", "d/", "d/a/b"} {
		for _, ifMatch := range []string{"", "0123456789abcdef0123456789abcdef"} {
			if key == "d/a" && ifMatch != "" {
				continue // covered by Conditions
			}
			if err := s.Delete(ctx, key, ifMatch); err != nil {
				t.Errorf("delete of %q with %q: %v", key, ifMatch, err)
			}
		}
	}
	put(t, s, "d/a", "x", object.PutOptions{})
	put(t, s, "d/b", "x", object.PutOptions{})
	for _, key := range []string{"d", "d/", "d/a/b"} {
		if err := s.Delete(ctx, key, ""); err != nil {
			t.Errorf("delete of %q, which is no object: %v", key, err)
		}
	}
	if got := keys(t, s, ""); strings.Join(got, " ") != "d/a d/b" {
		t.Errorf("after deletes: got %q", got)
	}
}

func testLarge(t *testing.T, s object.Store, l Limits) {
	if l.PartSize == 0 {
		l.PartSize = 1 << 20
	}
	data := make([]byte, 3*l.PartSize+12345)
	rand.Read(data)
	o := object.PutOptions{IfNoneMatch: true, Metadata: map[string]string{"k": "\u00fc"}, ContentType: "text/large"}
	info, err := s.Put(t.Context(), "large", bytes.NewReader(data), int64(len(data)), o)
	if err != nil {
		t.Fatal(err)
	}
	r, from, err := s.Get(t.Context(), "large", object.GetOptions{IfMatch: info.ETag})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	r.Close()
	if err != nil || !bytes.Equal(got, data) || from.Size != int64(len(data)) {
		t.Errorf("get: %d bytes of %d, equal %v, %v", len(got), from.Size, bytes.Equal(got, data), err)
	}
	wantMetadata(t, "large", from.Metadata, o.Metadata)
	if from.ContentType != "text/large" {
		t.Errorf("content type: got %q", from.ContentType)
	}
	_, err = s.Put(t.Context(), "large", bytes.NewReader(data), int64(len(data)), o)
	wantErr(t, "create over it", err, object.ErrPrecondition, "large")
	_, err = s.Put(t.Context(), "large", bytes.NewReader(data), int64(len(data)), object.PutOptions{IfMatch: "0123456789abcdef0123456789abcdef"})
	wantErr(t, "replace what is gone", err, object.ErrPrecondition, "large")
	if _, err = s.Put(t.Context(), "large", bytes.NewReader(data[1:]), int64(len(data)-1), object.PutOptions{IfMatch: info.ETag}); err != nil {
		t.Errorf("replace what is there: %v", err)
	}
	if got := keys(t, s, ""); len(got) != 1 {
		t.Errorf("keys: got %q, want large only", got)
	}
}

// shortBody ends before its size.
type shortBody struct{ have int64 }

func (b shortBody) ReadAt(p []byte, off int64) (int, error) {
	n := min(int64(len(p)), max(0, b.have-off))
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

var errDisk = errors.New("the disk is broken")

// failingBody cannot be read from some offset on.
type failingBody struct{ shortBody }

func (b failingBody) ReadAt(p []byte, off int64) (int, error) {
	n, err := b.shortBody.ReadAt(p, off)
	if err != nil {
		err = errDisk
	}
	return n, err
}

// testBrokenBody proves that an object never holds less than the body it was to be.
func testBrokenBody(t *testing.T, s object.Store, l Limits) {
	put(t, s, "b", "before", object.PutOptions{})
	for _, size := range []int64{100, 2*l.PartSize + 100} {
		_, err := s.Put(t.Context(), "b", shortBody{size - 10}, size, object.PutOptions{})
		wantErr(t, "short body", err, io.ErrUnexpectedEOF, "b")
		_, err = s.Put(t.Context(), "b", failingBody{shortBody{size - 10}}, size, object.PutOptions{})
		wantErr(t, "unreadable body", err, errDisk, "b")
		if got, _ := get(t, s, "b", object.GetOptions{}); got != "before" {
			t.Errorf("content: got %d bytes, want those of before", len(got))
		}
	}
}
