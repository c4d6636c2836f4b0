// Package storetest is the contract of object.Store as a test suite. Every
// implementation runs it; what a store cannot do is named in Limits.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"berth/fusefs/object"
)

// Limits say what an implementation cannot do by its nature.
type Limits struct {
	NoOverlap bool  // "a" and "a/b" cannot both exist: object.ErrOverlap
	Segment   int   // the longest part of a key between slashes; 0 = MaxKey
	PartSize  int64 // bodies above it go up in parts; 0 = bodies never do
}

// All runs the suite. Open returns an empty store; what it opens it closes by
// t.Cleanup.
func All(t *testing.T, limits Limits, open func(t *testing.T) object.Store) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s object.Store, l Limits)
	}{
		{"RoundTrip", testRoundTrip},
		{"Metadata", testMetadata},
		{"Conditions", testConditions},
		{"Races", testRaces},
		{"Range", testRange},
		{"Copy", testCopy},
		{"Delete", testDelete},
		{"List", testList},
		{"ListPages", testListPages},
		{"Keys", testKeys},
		{"BadArguments", testBadArguments},
		{"FilesAndDirectories", testFilesAndDirectories},
		{"Siblings", testSiblings},
		{"Markers", testMarkers},
		{"Large", testLarge},
		{"Compose", testCompose},
		{"BrokenBody", testBrokenBody},
		{"Generations", testGenerations},
		{"Cancel", testCancel},
		{"Probe", testProbe},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t), limits) })
	}
}

// put writes an object and fails the test if that fails.
func put(t *testing.T, s object.Store, key, body string, o object.PutOptions) object.Info {
	t.Helper()
	info, err := s.Put(t.Context(), key, strings.NewReader(body), int64(len(body)), o)
	if err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
	return info
}

// get returns the content of an object.
func get(t *testing.T, s object.Store, key string, o object.GetOptions) (string, object.Info) {
	t.Helper()
	r, info, err := s.Get(t.Context(), key, o)
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatalf("read %q: %v", key, err)
	}
	return string(data), info
}

// wantErr fails the test unless err matches the target and names the key.
func wantErr(t *testing.T, what string, err, target error, key string) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got error %v, want one that matches %q", what, err, target)
		return
	}
	if key != "" && !strings.Contains(err.Error(), key) {
		t.Errorf("%s: error %q does not name %q", what, err, key)
	}
}

// keys returns all keys under a prefix.
func keys(t *testing.T, s object.Store, prefix string) []string {
	t.Helper()
	var got []string
	for info, err := range object.All(t.Context(), s, prefix) {
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}
		got = append(got, info.Key)
	}
	return got
}

func testRoundTrip(t *testing.T, s object.Store, _ Limits) {
	before := time.Now().Add(-2 * time.Second).Truncate(time.Second)
	for _, body := range []string{"", "x", "hello\n", strings.Repeat("0123456789abcdef", 1<<14)} {
		info := put(t, s, "dir/file", body, object.PutOptions{ContentType: "text/plain"})
		if info.ETag == "" || strings.Contains(info.ETag, `"`) || info.Size != int64(len(body)) || info.Key != "dir/file" {
			t.Fatalf("put of %d bytes: got %+v", len(body), info)
		}
		got, from := get(t, s, "dir/file", object.GetOptions{})
		if got != body {
			t.Fatalf("get: %d bytes, want %d", len(got), len(body))
		}
		head, err := s.Head(t.Context(), "dir/file")
		if err != nil {
			t.Fatal(err)
		}
		page, err := s.List(t.Context(), object.ListOptions{})
		if err != nil || len(page.Objects) != 1 {
			t.Fatalf("list: got %+v, %v", page, err)
		}
		for name, i := range map[string]object.Info{"get": from, "head": head, "list": page.Objects[0]} {
			if i.Key != "dir/file" || i.Size != info.Size || i.ETag != info.ETag {
				t.Errorf("%s: got %+v, want what put said: %+v", name, i, info)
			}
			if !i.LastModified.Equal(head.LastModified) || i.LastModified.Before(before) || i.LastModified.Nanosecond() != 0 {
				t.Errorf("%s: last modified %s, head says %s", name, i.LastModified, head.LastModified)
			}
		}
		if head.ContentType != "text/plain" || from.ContentType != "text/plain" {
			t.Errorf("content type: head %q, get %q", head.ContentType, from.ContentType)
		}
	}
	_, err := s.Head(t.Context(), "dir/none")
	wantErr(t, "head of nothing", err, fs.ErrNotExist, "dir/none")
	_, _, err = s.Get(t.Context(), "dir/none", object.GetOptions{})
	wantErr(t, "get of nothing", err, fs.ErrNotExist, "dir/none")
	_, err = s.Head(t.Context(), "dir")
	wantErr(t, "head of a directory", err, fs.ErrNotExist, "dir")
	_, err = s.Head(t.Context(), "dir/file/below")
	wantErr(t, "head below a file", err, fs.ErrNotExist, "dir/file/below")
}

func testMetadata(t *testing.T, s object.Store, _ Limits) {
	want := map[string]string{
		"file-permissions": "0100644",
		"file-mtime":       "1714070400123456789ns",
		"berth_x.y-z":      "a b  c",
		"spaces":           "  both ends  ",
		"utf8":             "h\u00e9llo \u4e16\u754c \U0001f600",
		"bytes":            "\xff\x00\x01\n\r",
		"word":             "=?UTF-8?B?eA==?=",
		"quotes":           `<"a&b'\>`,
		"cache-control":    "not a header",
		"content-type":     "neither",
	}
	info := put(t, s, "m", "x", object.PutOptions{Metadata: want})
	wantMetadata(t, "put", info.Metadata, want)
	head, err := s.Head(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	wantMetadata(t, "head", head.Metadata, want)
	if head.ContentType != object.DefaultContentType {
		t.Errorf("content type: got %q", head.ContentType)
	}
	_, from := get(t, s, "m", object.GetOptions{})
	wantMetadata(t, "get", from.Metadata, want)

	// What is put without metadata has none, not that of before.
	put(t, s, "m", "x", object.PutOptions{})
	head, err = s.Head(t.Context(), "m")
	if err != nil || len(head.Metadata) != 0 {
		t.Errorf("head after a put without metadata: %v, %v", head.Metadata, err)
	}

	full := map[string]string{"k": strings.Repeat("v", object.MaxMetadata-1)}
	put(t, s, "full", "x", object.PutOptions{Metadata: full})
	if head, err = s.Head(t.Context(), "full"); err != nil {
		t.Fatal(err)
	}
	wantMetadata(t, "the most metadata", head.Metadata, full)
}

func wantMetadata(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got metadata %q, want %q", what, got, want)
		return
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: metadata %q: got %q, want %q", what, k, got[k], v)
		}
	}
}

func testBadArguments(t *testing.T, s object.Store, _ Limits) {
	ctx := t.Context()
	one := bytes.NewReader([]byte("x"))
	for name, key := range map[string]string{
		"empty": "", "long": strings.Repeat("k", 1025), "not UTF-8": "a\xffb", "NUL": "a\x00b",
	} {
		_, err := s.Put(ctx, key, one, 1, object.PutOptions{})
		wantErr(t, name+" key: put", err, fs.ErrInvalid, "")
		_, err = s.Head(ctx, key)
		wantErr(t, name+" key: head", err, fs.ErrInvalid, "")
		_, _, err = s.Get(ctx, key, object.GetOptions{})
		wantErr(t, name+" key: get", err, fs.ErrInvalid, "")
		_, err = s.Copy(ctx, key, "a", object.CopyOptions{})
		wantErr(t, name+" key: copy", err, fs.ErrInvalid, "")
		wantErr(t, name+" key: delete", s.Delete(ctx, key, ""), fs.ErrInvalid, "")
	}
	put(t, s, "a", "x", object.PutOptions{})
	_, err := s.Put(ctx, "a", one, 1, object.PutOptions{IfMatch: "e", IfNoneMatch: true})
	wantErr(t, "two conditions", err, fs.ErrInvalid, "a")
	_, err = s.Put(ctx, "a", one, -1, object.PutOptions{})
	wantErr(t, "negative size", err, fs.ErrInvalid, "a")
	for _, bad := range []map[string]string{{"": "x"}, {"Upper": "x"}, {"sp ace": "x"}, {"k": strings.Repeat("v", object.MaxMetadata)}} {
		_, err = s.Put(ctx, "a", one, 1, object.PutOptions{Metadata: bad})
		wantErr(t, "bad metadata", err, fs.ErrInvalid, "")
	}
	_, err = s.Copy(ctx, "a", "a", object.CopyOptions{Metadata: map[string]string{"k": "v"}})
	wantErr(t, "copy onto itself", err, fs.ErrInvalid, "a")
	_, _, err = s.Get(ctx, "a", object.GetOptions{Offset: -1})
	wantErr(t, "negative offset", err, fs.ErrInvalid, "a")
	_, err = s.List(ctx, object.ListOptions{Delimiter: "x"})
	wantErr(t, "odd delimiter", err, fs.ErrInvalid, "")
	_, err = s.List(ctx, object.ListOptions{Max: object.MaxPage + 1})
	wantErr(t, "large page", err, fs.ErrInvalid, "")
}

// testCancel proves that a caller's own wish is told apart from a store that is away.
func testCancel(t *testing.T, s object.Store, _ Limits) {
	put(t, s, "a", "x", object.PutOptions{})
	why := errors.New("nobody wants it any more")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := s.Head(ctx, "a")
	wantErr(t, "head", err, why, "a")
	_, err = s.List(ctx, object.ListOptions{Prefix: "a"})
	wantErr(t, "list", err, why, "a")
	_, err = s.Put(ctx, "a", strings.NewReader("x"), 1, object.PutOptions{})
	wantErr(t, "put", err, why, "a")
	wantErr(t, "delete", s.Delete(ctx, "a", ""), why, "a")
}
