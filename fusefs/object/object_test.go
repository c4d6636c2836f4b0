package object_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"berth"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

func TestAllStopsAtAnError(t *testing.T) {
	s := new(mem.Store)
	for i := range 5 {
		if _, err := s.Put(t.Context(), fmt.Sprint("p/", i), strings.NewReader(""), 0, object.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, err := range object.All(t.Context(), s, "p/") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("got %d objects before the break, want 2", n)
	}
	s.Inject(mem.Fault{Op: mem.OpList, Err: berth.ErrUnavailable})
	n = 0
	var last error
	for _, err := range object.All(t.Context(), s, "p/") {
		n++
		last = err
	}
	if n != 1 || !errors.Is(last, berth.ErrUnavailable) {
		t.Errorf("got %d results and %v, want one that is unavailable", n, last)
	}
}

// TestProbeOfAWeakStore proves that what a store ignores is not taken for ability.
func TestProbeOfAWeakStore(t *testing.T) {
	s := new(mem.Store)
	s.Inject(mem.Fault{Op: mem.OpCopy, Err: errors.ErrUnsupported})
	got, err := object.Probe(t.Context(), ignorant{s})
	if err != nil {
		t.Fatal(err)
	}
	if want := (object.Abilities{Metadata: true, Overlap: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, a := range got.Explain() {
		if a.Name == "" || a.Text == "" {
			t.Errorf("an ability without words: %+v", a)
		}
	}
	page, err := s.List(t.Context(), object.ListOptions{})
	if err != nil || len(page.Objects) != 0 {
		t.Errorf("the probe left %+v, %v", page.Objects, err)
	}
	s.Inject(mem.Fault{Op: mem.OpHead, Err: berth.ErrUnavailable})
	if _, err := object.Probe(t.Context(), s); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("a store that is away: got %v, want unavailable", err)
	}
}

func FuzzCheckKey(f *testing.F) {
	for _, s := range []string{"", "a", "a/b", "a\x00", "\xff", strings.Repeat("x", 1025), "\ufffd", "..", "//"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		err := object.CheckKey(key)
		valid := len(key) >= 1 && len(key) <= 1024 && utf8.ValidString(key) && !strings.Contains(key, "\x00")
		if valid != (err == nil) {
			t.Errorf("%q: got %v, want valid = %v", key, err, valid)
		}
		if err != nil && !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v is not fs.ErrInvalid", key, err)
		}
	})
}

func FuzzMetadataValue(f *testing.F) {
	for _, s := range []string{"", "plain", " x ", "\u00fc", "\xff\x00", "=?UTF-8?B?eA==?=", "=?", "=?utf-8?q?a?= =?utf-8?q?b?=", "a\r\nb", `"<&>\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v string) {
		enc := object.EncodeMetadataValue(v)
		if got := object.DecodeMetadataValue(enc); got != v {
			t.Errorf("%q became %q by way of %q", v, got, enc)
		}
		if !httpguts.ValidHeaderFieldValue(enc) || strings.TrimSpace(enc) != enc {
			t.Errorf("%q: %q does not survive as a header", v, enc)
		}
		h := http.Header{}
		h.Set("X-Amz-Meta-K", enc)
		var b strings.Builder
		if err := h.Write(&b); err != nil || b.String() != "X-Amz-Meta-K: "+enc+"\r\n" {
			t.Errorf("%q: written as %q, %v", v, b.String(), err)
		}
		object.DecodeMetadataValue(v) // whatever other tools wrote: it must not panic
		size := object.MetadataSize(map[string]string{"k": v})
		if err := object.CheckMetadata(map[string]string{"k": v}); (err == nil) != (size <= object.MaxMetadata) {
			t.Errorf("%d bytes: got %v", size, err)
		}
	})
}

func TestDecodeForeignMetadata(t *testing.T) {
	for in, want := range map[string]string{
		"=?UTF-8?Q?h=C3=A9?=":               "h\u00e9",
		"=?utf-8?b?w7w=?=":                  "\u00fc",
		"=?UTF-8?B?w7w=?= =?UTF-8?B?w7w=?=": "\u00fc\u00fc",
		"=?UTF-8?B?not base64?=":            "=?UTF-8?B?not base64?=",
		"=?nobody-knows?B?w7w=?=":           "=?nobody-knows?B?w7w=?=",
		"plain":                             "plain",
	} {
		if got := object.DecodeMetadataValue(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
