package mounts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth"
	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

// everything is what the in-memory store can do.
var everything = object.Abilities{PutIfNoneMatch: true, PutIfMatch: true, DeleteIfMatch: true, MultipartIfNoneMatch: true, Metadata: true, Copy: true, Overlap: true}

func recordsOptions(store object.Store, dir string) RecordsOptions {
	return RecordsOptions{Store: store, Abilities: everything, Exclusive: true, Dir: dir, Poll: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
}

func newRecords(t *testing.T, o RecordsOptions) *Records {
	t.Helper()
	r, err := OpenRecords(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestRecordsContract(t *testing.T) {
	runRecordsContract(t, func(t *testing.T) berth.Records {
		return newRecords(t, recordsOptions(new(mem.Store), t.TempDir()))
	})
}

func TestRecordsContractWithoutConditions(t *testing.T) {
	runRecordsContract(t, func(t *testing.T) berth.Records {
		o := recordsOptions(new(mem.Store), t.TempDir())
		o.Abilities = object.Abilities{}
		return newRecords(t, o)
	})
}

func put(t *testing.T, r berth.Records, key, version, value string) string {
	t.Helper()
	v, err := r.Put(t.Context(), berth.Record{Key: key, Version: version, Value: json.RawMessage(value)})
	if err != nil {
		t.Fatalf("Put %s: %v", key, err)
	}
	return v
}

func value(r berth.Records, t *testing.T, key string) string {
	t.Helper()
	rec, err := r.Get(t.Context(), key)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(rec.Value)
}

func TestRecordsAreReadWhileTheStoreIsAway(t *testing.T) {
	store, dir := new(mem.Store), t.TempDir()
	r := newRecords(t, recordsOptions(store, dir))
	version := put(t, r, "members/acme/ann", "", `{"role":"admin"}`)
	gone := put(t, r, "members/acme/bob", "", `{}`)
	if err := r.Delete(t.Context(), "members/acme/bob", gone); err != nil {
		t.Fatal(err)
	}
	r.Close()

	back := store.Inject(mem.Fault{Err: berth.ErrUnavailable})
	r = newRecords(t, recordsOptions(store, dir))
	want(t, "Get", value(r, t, "members/acme/ann"), `{"role":"admin"}`)
	if _, err := r.Get(t.Context(), "members/acme/bob"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get of a deleted record: got %v, want fs.ErrNotExist", err)
	}
	if recs, err := r.List(t.Context(), "members/"); err != nil || len(recs) != 1 {
		t.Errorf("List: got %v, %v; want one record", recs, err)
	}
	_, err := r.Put(t.Context(), berth.Record{Key: "members/acme/ann", Version: version, Value: json.RawMessage(`1`)})
	if !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("Put: got %v, want ErrUnavailable", err)
	}
	if err := r.Delete(t.Context(), "members/acme/ann", version); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("Delete: got %v, want ErrUnavailable", err)
	}
	back()
	put(t, r, "members/acme/ann", version, `2`)
}

func TestUnreadRecordsAreNotMissing(t *testing.T) {
	store := new(mem.Store)
	put(t, newRecords(t, recordsOptions(store, t.TempDir())), "a", "", `1`)
	back := store.Inject(mem.Fault{Err: berth.ErrUnavailable})
	r := newRecords(t, recordsOptions(store, t.TempDir()))
	if _, err := r.Get(t.Context(), "a"); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("Get: got %v, want ErrUnavailable", err)
	}
	if _, err := r.List(t.Context(), ""); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("List: got %v, want ErrUnavailable", err)
	}
	back()
	eventually(t, "the records", func() bool { return value(r, t, "a") == `1` })
}

// A change whose answer is lost is found out about, not done twice or dropped.
func TestLostAnswers(t *testing.T) {
	store := new(mem.Store)
	r := newRecords(t, recordsOptions(store, t.TempDir()))
	store.Inject(mem.Fault{Op: mem.OpPut, Times: 1, Lost: true})
	v1 := put(t, r, "a", "", `1`)
	store.Inject(mem.Fault{Op: mem.OpDelete, Times: 1, Lost: true})
	if err := r.Delete(t.Context(), "a", v1); err != nil {
		t.Errorf("Delete: %v", err)
	}
	v2 := put(t, r, "a", "", `2`)

	// And nothing can be asked at once.
	store.Inject(mem.Fault{Op: mem.OpPut, Times: 1, Lost: true})
	away := store.Inject(mem.Fault{Op: mem.OpGet, Err: berth.ErrUnavailable})
	_, err := r.Put(t.Context(), berth.Record{Key: "a", Version: v2, Value: json.RawMessage(`3`)})
	if !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("Put: got %v, want ErrUnavailable", err)
	}
	away()
	eventually(t, "the lost change", func() bool { return value(r, t, "a") == `3` })
}

func TestOthersChangesArrive(t *testing.T) {
	store := new(mem.Store)
	o := recordsOptions(store, t.TempDir())
	o.Exclusive = false
	a := newRecords(t, o)
	o.Dir = t.TempDir()
	b := newRecords(t, o)
	v1 := put(t, a, "k", "", `1`)
	eventually(t, "a new record", func() bool { return value(b, t, "k") == `1` })
	v2 := put(t, b, "k", v1, `2`)
	_, err := a.Put(t.Context(), berth.Record{Key: "k", Version: v1, Value: json.RawMessage(`3`)})
	if !errors.Is(err, berth.ErrConflict) {
		t.Errorf("Put over another's change: got %v, want ErrConflict", err)
	}
	eventually(t, "another's change", func() bool { return value(a, t, "k") == `2` })
	if err := a.Delete(t.Context(), "k", v2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another's removal", func() bool {
		_, err := b.Get(t.Context(), "k")
		return errors.Is(err, fs.ErrNotExist)
	})
}

func TestSpoiltObjectsAreNoRecords(t *testing.T) {
	store := new(mem.Store)
	for _, key := range []string{"a.json", "b/c.json", "x", "..json", ".json"} {
		body := []byte(`{"key":"zzz","version":"v","value":1}`)
		if _, err := store.Put(t.Context(), recordPrefix+key, bytes.NewReader(body), int64(len(body)), object.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r := newRecords(t, recordsOptions(store, t.TempDir()))
	if recs, err := r.List(t.Context(), ""); err != nil || len(recs) != 0 {
		t.Errorf("List: got %v, %v; want none", recs, err)
	}
	if _, err := r.Put(t.Context(), berth.Record{Key: "a", Value: json.RawMessage(`1`)}); !errors.Is(err, berth.ErrConflict) {
		t.Errorf("Put: got %v, want ErrConflict", err)
	}
}

// A local copy that a power cut has spoilt is made good from the store.
func TestTornLocalCopy(t *testing.T) {
	store, dir := new(mem.Store), t.TempDir()
	r := newRecords(t, recordsOptions(store, dir))
	for i := range 20 {
		put(t, r, fmt.Sprint("k", i), "", fmt.Sprint(i))
	}
	r.Close()
	name := filepath.Join(dir, "records.jsonl")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, torn := range []string{string(data[:len(data)/2]), string(data[:len(data)/2]) + "\x00\x00\x00\n" + string(data[len(data)/2:]), ""} {
		if err := os.WriteFile(name, []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := OpenRecords(t.Context(), recordsOptions(store, dir))
		if err != nil {
			t.Fatal(err)
		}
		if recs, err := r.List(t.Context(), ""); err != nil || len(recs) != 20 {
			t.Errorf("List: got %d records, %v; want 20", len(recs), err)
		}
		r.Close()
	}
}

func TestLocalCopyStaysSmall(t *testing.T) {
	store, dir := new(mem.Store), t.TempDir()
	r := newRecords(t, recordsOptions(store, dir))
	version := ""
	for i := range 2500 {
		version = put(t, r, "k", version, fmt.Sprint(i))
	}
	data, err := os.ReadFile(filepath.Join(dir, "records.jsonl"))
	if lines := bytes.Count(data, []byte("\n")); err != nil || lines > 1100 {
		t.Errorf("the local copy of one record has %d lines (%v)", lines, err)
	}
	r.Close()
	store.Inject(mem.Fault{Err: berth.ErrUnavailable})
	want(t, "after a restart", value(newRecords(t, recordsOptions(store, dir)), t, "k"), "2499")
}
