package mounts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"berth"
)

// runRecordsContract runs the contract of berth.Records on what open returns,
// which is empty.
func runRecordsContract(t *testing.T, open func(t *testing.T) berth.Records) {
	for name, test := range map[string]func(*testing.T, berth.Records){
		"create":    contractCreate,
		"replace":   contractReplace,
		"delete":    contractDelete,
		"list":      contractList,
		"keys":      contractKeys,
		"values":    contractValues,
		"contended": contractContended,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func contractCreate(t *testing.T, r berth.Records) {
	const key = "chats/acme/members/ann/c1"
	if _, err := r.Get(t.Context(), key); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Get before: got %v, want fs.ErrNotExist", err)
	}
	version := put(t, r, key, "", `{"title":"<b> & ünïcode"}`)
	rec, err := r.Get(t.Context(), key)
	if err != nil || rec.Key != key || rec.Version != version || version == "" || string(rec.Value) != `{"title":"<b> & ünïcode"}` {
		t.Errorf("Get: got %+v (%s), %v; want version %q", rec, rec.Value, err, version)
	}
	if _, err := r.Put(t.Context(), berth.Record{Key: key, Value: json.RawMessage(`2`)}); !errors.Is(err, berth.ErrConflict) {
		t.Errorf("create again: got %v, want ErrConflict", err)
	}
}

func contractReplace(t *testing.T, r berth.Records) {
	v1 := put(t, r, "a/b", "", `1`)
	v2 := put(t, r, "a/b", v1, `2`)
	v3 := put(t, r, "a/b", v2, `1`) // the first value again is not the first version
	if v1 == v2 || v2 == v3 || v1 == v3 {
		t.Errorf("versions are not different: %q, %q, %q", v1, v2, v3)
	}
	for _, old := range []string{"", v1, v2, "nonsense"} {
		_, err := r.Put(t.Context(), berth.Record{Key: "a/b", Version: old, Value: json.RawMessage(`3`)})
		if !errors.Is(err, berth.ErrConflict) {
			t.Errorf("Put over version %q: got %v, want ErrConflict", old, err)
		}
	}
	if rec, err := r.Get(t.Context(), "a/b"); err != nil || string(rec.Value) != `1` || rec.Version != v3 {
		t.Errorf("Get: got %+v, %v", rec, err)
	}
}

func contractDelete(t *testing.T, r berth.Records) {
	v1 := put(t, r, "x", "", `1`)
	v2 := put(t, r, "x", v1, `2`)
	if err := r.Delete(t.Context(), "x", v1); !errors.Is(err, berth.ErrConflict) {
		t.Errorf("Delete of an old version: got %v, want ErrConflict", err)
	}
	if err := r.Delete(t.Context(), "x", ""); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("Delete without a version: got %v, want fs.ErrInvalid", err)
	}
	if err := r.Delete(t.Context(), "x", v2); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	if err := r.Delete(t.Context(), "x", v2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Delete again: got %v, want fs.ErrNotExist", err)
	}
	if _, err := r.Put(t.Context(), berth.Record{Key: "x", Version: v2, Value: json.RawMessage(`3`)}); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, berth.ErrConflict) {
		t.Errorf("Put over what is deleted: got %v, want ErrConflict or fs.ErrNotExist", err)
	}
	put(t, r, "x", "", `4`)
}

func contractList(t *testing.T, r berth.Records) {
	big := `"` + strings.Repeat("x", berth.MaxRecord-2) + `"`
	var want []string
	for i := range 12 { // several megabytes
		key := fmt.Sprintf("keys/acme/k%02d", i)
		put(t, r, key, "", big)
		want = append(want, key)
	}
	put(t, r, "keys/acme2/k", "", `1`)
	put(t, r, "kezs/acme", "", `1`)
	for _, tc := range []struct {
		prefix string
		want   []string
	}{
		{"keys/acme/", want},
		{"keys/acme", append(want[:len(want):len(want)], "keys/acme2/k")},
		{"keys/acme/k0", want[:10]},
		{"keys/acme/k03", want[3:4]},
		{"nothing", nil},
	} {
		recs, err := r.List(t.Context(), tc.prefix)
		var got []string
		for _, rec := range recs {
			got = append(got, rec.Key)
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("List %q: got %v, %v; want %v", tc.prefix, got, err, tc.want)
		}
	}
	if all, err := r.List(t.Context(), ""); err != nil || len(all) != 14 || string(all[0].Value) != big || all[0].Version == "" {
		t.Errorf("List of all: got %d records, %v; want 14", len(all), err)
	}
}

func contractKeys(t *testing.T, r berth.Records) {
	for _, key := range []string{
		"", "/", "a/", "/a", "a//b", ".", "..", "a/../b", ".hidden", "a/.b", "a b", "a\x00", "ü", "a\\b",
		strings.Repeat("x", 129), strings.Repeat("x/", 600) + "x",
	} {
		_, err1 := r.Get(t.Context(), key)
		_, err2 := r.Put(t.Context(), berth.Record{Key: key, Value: json.RawMessage(`1`)})
		err3 := r.Delete(t.Context(), key, "v")
		for what, err := range map[string]error{"Get": err1, "Put": err2, "Delete": err3} {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%s %q: got %v, want fs.ErrInvalid", what, key, err)
			}
		}
	}
	for _, prefix := range []string{"/", "..", "../", "a//", "\x00"} {
		if _, err := r.List(t.Context(), prefix); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("List %q: got %v, want fs.ErrInvalid", prefix, err)
		}
	}
}

func contractValues(t *testing.T, r berth.Records) {
	for _, value := range []string{"", "{", "nope", `{"a":1}{}`, `"` + strings.Repeat("x", berth.MaxRecord) + `"`} {
		_, err := r.Put(t.Context(), berth.Record{Key: "v", Value: json.RawMessage(value)})
		if !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("Put of a value of %d bytes: got %v, want fs.ErrInvalid", len(value), err)
		}
	}
	html := `"` + strings.Repeat("<", berth.MaxRecord-2) + `"` // six times as long where it is escaped
	put(t, r, "v", "", html)
	if rec, err := r.Get(t.Context(), "v"); err != nil || string(rec.Value) != html {
		t.Errorf("Get: got %d bytes, %v; want %d", len(rec.Value), err, len(html))
	}
}

// Of many writers that read the same version exactly one succeeds.
func contractContended(t *testing.T, r berth.Records) {
	const writers, rounds = 8, 10
	put(t, r, "counter", "", `0`)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < rounds; {
				rec, err := r.Get(t.Context(), "counter")
				if err != nil {
					t.Errorf("Get: %v", err)
					return
				}
				var n int
				json.Unmarshal(rec.Value, &n)
				rec.Value, _ = json.Marshal(n + 1)
				switch _, err := r.Put(t.Context(), rec); {
				case err == nil:
					done++
				case !errors.Is(err, berth.ErrConflict):
					t.Errorf("Put: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if rec, err := r.Get(t.Context(), "counter"); err != nil || string(rec.Value) != fmt.Sprint(writers*rounds) {
		t.Errorf("counter: got %s, %v; want %d", rec.Value, err, writers*rounds)
	}
}
