package storetest

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"berth/fusefs/object"
)

func testList(t *testing.T, s object.Store, _ Limits) {
	all := []string{"a", "b/", "b/c", "b/d/e", "b/d/f", "b0", "c-d", "c.d", "c/d", "c0", "\u00fc", "\U0001f600"}
	for _, k := range all {
		put(t, s, k, "", object.PutOptions{})
	}
	if got := keys(t, s, ""); !slices.Equal(got, all) {
		t.Errorf("all: got %q, want %q", got, all)
	}
	for _, c := range []struct {
		o                 object.ListOptions
		objects, prefixes string
	}{
		{object.ListOptions{Prefix: "b"}, "b/ b/c b/d/e b/d/f b0", ""},
		{object.ListOptions{Prefix: "b/d"}, "b/d/e b/d/f", ""},
		{object.ListOptions{Prefix: "b/d/"}, "b/d/e b/d/f", ""},
		{object.ListOptions{Prefix: "none/"}, "", ""},
		{object.ListOptions{Delimiter: "/"}, "a b0 c-d c.d c0 \u00fc \U0001f600", "b/ c/"},
		{object.ListOptions{Prefix: "b/", Delimiter: "/"}, "b/ b/c", "b/d/"},
		{object.ListOptions{Prefix: "b", Delimiter: "/"}, "b0", "b/"},
		{object.ListOptions{Prefix: "c", Delimiter: "/"}, "c-d c.d c0", "c/"},
		{object.ListOptions{After: "b/c"}, "b/d/e b/d/f b0 c-d c.d c/d c0 \u00fc \U0001f600", ""},
		{object.ListOptions{After: "b/cc"}, "b/d/e b/d/f b0 c-d c.d c/d c0 \u00fc \U0001f600", ""},
		{object.ListOptions{Prefix: "b/", After: "b/d/e"}, "b/d/f", ""},
		{object.ListOptions{Prefix: "c", After: "c.d"}, "c/d c0", ""},
		{object.ListOptions{After: "\u00fc"}, "\U0001f600", ""},
	} {
		page, err := s.List(t.Context(), c.o)
		if err != nil {
			t.Errorf("%+v: %v", c.o, err)
			continue
		}
		var objects []string
		for _, i := range page.Objects {
			objects = append(objects, i.Key)
		}
		if got := strings.Join(objects, " "); got != c.objects || strings.Join(page.Prefixes, " ") != c.prefixes || page.Next != "" {
			t.Errorf("%+v: got %q and %q, next %q; want %q and %q", c.o, got, page.Prefixes, page.Next, c.objects, c.prefixes)
		}
	}
}

func testListPages(t *testing.T, s object.Store, _ Limits) {
	var all, top []string
	for i := range 7 {
		dir := fmt.Sprintf("p/%d", i)
		top = append(top, dir+"-", dir+"/")
		all = append(all, dir+"-", dir+"/x", dir+"/y")
	}
	for _, k := range all {
		put(t, s, k, "x", object.PutOptions{})
	}
	for _, size := range []int{1, 2, 3, 5, 14, 21} {
		for _, delimiter := range []string{"", "/"} {
			want := all
			if delimiter != "" {
				want = top
			}
			var got []string
			o := object.ListOptions{Prefix: "p/", Delimiter: delimiter, Max: size}
			for pages := 0; ; pages++ {
				page, err := s.List(t.Context(), o)
				if err != nil || pages > len(all) || len(page.Objects)+len(page.Prefixes) > size {
					t.Fatalf("pages of %d: page %d: %+v, %v", size, pages, page, err)
				}
				var names []string
				for _, i := range page.Objects {
					names = append(names, i.Key)
				}
				names = append(names, page.Prefixes...)
				slices.Sort(names)
				got = append(got, names...)
				if page.Next == "" {
					break
				}
				o.After = page.Next
			}
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d with delimiter %q: got %q, want %q", size, delimiter, got, want)
			}
		}
	}
}

// testKeys sends every printable byte, and what XML, URLs and shells make of
// names, through all calls.
func testKeys(t *testing.T, s object.Store, l Limits) {
	segment := l.Segment
	if segment == 0 {
		segment = object.MaxKey
	}
	long := strings.Repeat("\u00fc", 127) // 254 bytes
	names := []string{
		"k/line\nbreak", "k/\r", "k/tab\there", "k/\x01\x1f\x7f", "k/\ufffe\uffff", "k/\u2028", "k/e\u0301 is not \u00e9", "k/\u00e9",
		"k/%2F", "k/%", "k/a%20b", "k/a+b c", "k/?q=1&r#f", "k/..x", "k/x..", "k/.hidden", "k/ ", "k/ x ", "k/~", "k/\\", "k/'\"<>&;|*",
		"k/.sgwtmp", "k/uploads", "k/" + strings.Repeat("n", min(255, segment)),
		"k" + strings.Repeat("/"+long, 3) + "/" + strings.Repeat("z", min(255, 1024-1-3*255-1)),
	}
	for c := byte(0x21); c < 0x7f; c++ {
		if c != '/' && c != '.' {
			names = append(names, "k/b/"+string(c))
		}
	}
	slices.Sort(names)
	for i, name := range names {
		body := fmt.Sprint(i)
		info := put(t, s, name, body, object.PutOptions{IfNoneMatch: true})
		info = put(t, s, name, body+"!", object.PutOptions{IfMatch: info.ETag})
		if got, from := get(t, s, name, object.GetOptions{IfMatch: info.ETag}); got != body+"!" || from.Key != name {
			t.Errorf("%q: got %q and %+v", name, got, from)
		}
	}
	if got := keys(t, s, "k/"); !slices.Equal(got, names) {
		t.Errorf("list: got %q, want %q", got, names)
	}
	for _, name := range names {
		if got := keys(t, s, name); len(got) == 0 || got[0] != name {
			t.Errorf("list of %q: got %q", name, got)
		}
		if _, err := s.Copy(t.Context(), "copy", name, object.CopyOptions{}); err != nil {
			t.Errorf("copy: %v", err)
		}
		if err := s.Delete(t.Context(), name, ""); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if got := keys(t, s, "k/"); len(got) != 0 {
		t.Errorf("after all deletes: got %q", got)
	}
	if segment < object.MaxKey {
		_, err := s.Put(t.Context(), strings.Repeat("n", segment+1), strings.NewReader(""), 0, object.PutOptions{})
		wantErr(t, "a part of the key that is too long", err, fs.ErrInvalid, "nnn")
	}
}

// testFilesAndDirectories follows one name through being a file and a directory.
func testFilesAndDirectories(t *testing.T, s object.Store, l Limits) {
	ctx := t.Context()
	remove := func(key string) {
		t.Helper()
		if err := s.Delete(ctx, key, ""); err != nil {
			t.Fatalf("delete %q: %v", key, err)
		}
	}
	for range 3 {
		put(t, s, "x/a", "file", object.PutOptions{IfNoneMatch: true})
		remove("x/a")
		put(t, s, "x/a/b/c", "below", object.PutOptions{IfNoneMatch: true})
		if got := keys(t, s, ""); !slices.Equal(got, []string{"x/a/b/c"}) {
			t.Fatalf("got %q", got)
		}
		remove("x/a/b/c")
	}
	put(t, s, "x/a", "file", object.PutOptions{})
	for _, parts := range []bool{false, true} {
		_, err := s.Put(ctx, "x/a/b", strings.NewReader("x"), 1, object.PutOptions{InParts: parts})
		if l.NoOverlap {
			wantErr(t, "below a file", err, object.ErrOverlap, "x/a/b")
		} else if err != nil {
			t.Errorf("below a file: %v", err)
		}
	}
	remove("x/a/b")
	remove("x/a")
	put(t, s, "x/a/b", "below", object.PutOptions{})
	for _, parts := range []bool{false, true} {
		_, err := s.Put(ctx, "x/a", strings.NewReader("x"), 1, object.PutOptions{InParts: parts})
		if l.NoOverlap {
			wantErr(t, "in place of a directory", err, object.ErrOverlap, "x/a")
		} else if err != nil {
			t.Errorf("in place of a directory: %v", err)
		}
	}
	remove("x/a")
	remove("x/a/b")
	if got := keys(t, s, ""); len(got) != 0 {
		t.Errorf("in the end: got %q", got)
	}
}

// testMarkers proves that the marker of a directory is an object of its own.
func testMarkers(t *testing.T, s object.Store, _ Limits) {
	ctx := t.Context()
	meta := map[string]string{"file-permissions": "0040700"}
	put(t, s, "d/x", "x", object.PutOptions{})
	_, err := s.Head(ctx, "d/")
	wantErr(t, "head of a marker that is not there", err, fs.ErrNotExist, "d/")
	put(t, s, "d/", "", object.PutOptions{IfNoneMatch: true, Metadata: meta})
	_, err = s.Put(ctx, "d/", strings.NewReader(""), 0, object.PutOptions{IfNoneMatch: true})
	wantErr(t, "the marker again", err, object.ErrPrecondition, "d/")
	if got := keys(t, s, "d"); !slices.Equal(got, []string{"d/", "d/x"}) {
		t.Errorf("beside a file: got %q", got)
	}
	if err := s.Delete(ctx, "d/x", ""); err != nil {
		t.Fatal(err)
	}
	got, info := get(t, s, "d/", object.GetOptions{})
	if got != "" || info.Size != 0 {
		t.Errorf("the marker alone: got %q, %+v", got, info)
	}
	wantMetadata(t, "marker", info.Metadata, meta)
	page, err := s.List(ctx, object.ListOptions{Prefix: "d/"})
	if err != nil || len(page.Objects) != 1 || !page.Objects[0].LastModified.Equal(info.LastModified) {
		t.Errorf("the marker alone: list says %+v, %v; get says %+v", page.Objects, err, info)
	}
	if _, err := s.Copy(ctx, "e/", "d/", object.CopyOptions{SourceETag: info.ETag}); err != nil {
		t.Error(err)
	}
	_, copied := get(t, s, "e/", object.GetOptions{})
	wantMetadata(t, "copied marker", copied.Metadata, meta)
	if err := s.Delete(ctx, "e/", ""); err != nil {
		t.Error(err)
	}

	put(t, s, "d/x", "x", object.PutOptions{})
	if err := s.Delete(ctx, "d/", info.ETag); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, s, "d"); !slices.Equal(got, []string{"d/x"}) {
		t.Errorf("after the marker went: got %q", got)
	}
	put(t, s, "d/", "", object.PutOptions{})
	head, err := s.Head(ctx, "d/")
	if err != nil || len(head.Metadata) != 0 {
		t.Errorf("a marker without metadata: got %q, %v", head.Metadata, err)
	}
	for _, key := range []string{"d/", "d/x"} {
		if err := s.Delete(ctx, key, ""); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "d", "a file", object.PutOptions{IfNoneMatch: true})
	if got := keys(t, s, ""); !slices.Equal(got, []string{"d"}) {
		t.Errorf("in the end: got %q", got)
	}
}
