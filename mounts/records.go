package mounts

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"berth"
	"berth/fusefs/object"
)

// RecordsOptions say where records are kept. Store and Dir are needed.
type RecordsOptions struct {
	Store     object.Store
	Abilities object.Abilities // without conditions of the store, only this process keeps writers apart
	Exclusive bool             // nobody else writes records to the store
	Dir       string           // of the local copy; made if need be
	Poll      time.Duration    // how often others' changes are looked for; 0 = 3 s
	Logger    *slog.Logger     // nil = slog.Default
}

// Records are the installation's records: each an object of the bucket, changed
// by conditional PUT, and a local copy of all of them, from which Get and List
// are answered. Every write makes an object of its own content, so that equal
// values have different ETags. Until all records were read from the store once,
// a record that is not known is berth.ErrUnavailable, not fs.ErrNotExist.
//
// Lock order: a key's lock, then mu. A key's lock is held over calls to the
// store, so that what is read and what is written of one record keep their
// order; mu never is.
type Records struct {
	opts  RecordsOptions
	log   *slog.Logger
	seed  maphash.Seed
	locks [256]chan struct{} // by hash of the key; full = locked

	mu     sync.Mutex // protects what follows
	local  localCopy
	doubt  map[string]bool   // a change was sent, and its answer is not known
	spoilt map[string]string // ETags of objects that are no records, by key

	cancel context.CancelFunc
	done   chan struct{}
}

var _ berth.Records = (*Records)(nil)

const (
	recordPrefix = ".berth/records/"
	recordSuffix = ".json"
	maxRecordKey = 900                     // bytes, so that the object's key is one
	maxEnvelope  = berth.MaxRecord + 2<<10 // bytes of an object
	firstRead    = 20 * time.Second        // for the first reading, if there is no local copy
)

// envelope is the content of a record's object.
type envelope struct {
	Key     string          `json:"key"`
	Version string          `json:"version"`
	Value   json.RawMessage `json:"value"`
}

// OpenRecords reads the local copy and starts to bring it up to date with the
// store. Without a local copy it waits for the store, but not for long. ctx
// bounds opening only.
func OpenRecords(ctx context.Context, o RecordsOptions) (*Records, error) {
	if o.Poll <= 0 {
		o.Poll = 3 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	r := &Records{opts: o, log: o.Logger, seed: maphash.MakeSeed(), done: make(chan struct{})}
	r.doubt, r.spoilt = make(map[string]bool), make(map[string]string)
	for i := range r.locks {
		r.locks[i] = make(chan struct{}, 1)
	}
	if err := r.local.open(o.Dir); err != nil {
		return nil, fmt.Errorf("cannot open records: %w", err)
	}
	if !o.Exclusive && !(o.Abilities.PutIfMatch && o.Abilities.PutIfNoneMatch) {
		r.log.Warn("Records are not safe with several gateways on one bucket, the store has no conditional PUT")
	}
	fresh := false
	if !r.local.complete {
		first, cancel := context.WithTimeout(ctx, firstRead)
		err := r.refreshAll(first)
		cancel()
		if fresh = err == nil; !fresh {
			r.log.Warn("Cannot read records from the store, going on without", "cause", err)
		}
	}
	loop, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go r.follow(loop, fresh)
	return r, nil
}

// Close ends the background work. What was written is in the store.
func (r *Records) Close() error {
	r.cancel()
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.local.close()
}

// checkRecordKey checks a record's key: ids joined by slashes.
func checkRecordKey(key string) error {
	if len(key) > maxRecordKey {
		return fmt.Errorf("invalid record key: it has %d bytes, at most %d are allowed: %w", len(key), maxRecordKey, fs.ErrInvalid)
	}
	for part := range strings.SplitSeq(key, "/") {
		if _, err := berth.ParseID("record key's", part); err != nil {
			return err
		}
	}
	return nil
}

// checkRecord checks the key and the value of a record that is to be put.
func checkRecord(rec berth.Record) error {
	if err := checkRecordKey(rec.Key); err != nil {
		return err
	}
	if len(rec.Value) > berth.MaxRecord || !json.Valid(rec.Value) {
		return fmt.Errorf("cannot put record %s: its value must be JSON of at most %d bytes: %w", rec.Key, berth.MaxRecord, fs.ErrInvalid)
	}
	return nil
}

// checkRecordPrefix checks what a record's key can begin with.
func checkRecordPrefix(prefix string) error {
	if prefix == "" || checkRecordKey(strings.TrimSuffix(prefix, "/")) == nil {
		return nil
	}
	return fmt.Errorf("invalid prefix of record keys %.64q: %w", prefix, fs.ErrInvalid)
}

// Get implements berth.Records.
func (r *Records) Get(ctx context.Context, key string) (berth.Record, error) {
	if err := checkRecordKey(key); err != nil {
		return berth.Record{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.local.entries[key]; ok {
		return e.record(key), nil
	}
	return berth.Record{}, fmt.Errorf("cannot get record %s: %w", key, r.missingLocked())
}

// missingLocked is the error for what is not in the local copy.
func (r *Records) missingLocked() error {
	if r.local.complete {
		return fs.ErrNotExist
	}
	return fmt.Errorf("records were not read from the store yet: %w", berth.ErrUnavailable)
}

// List implements berth.Records.
func (r *Records) List(ctx context.Context, prefix string) ([]berth.Record, error) {
	recs, _, err := r.listAfter(prefix, "", 0)
	return recs, err
}

// listAfter lists the records behind a key, and stops when their values have
// more than limit bytes (0 = never); more tells that there are others.
func (r *Records) listAfter(prefix, after string, limit int) (recs []berth.Record, more bool, err error) {
	if err := checkRecordPrefix(prefix); err != nil {
		return nil, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.local.complete {
		return nil, false, fmt.Errorf("cannot list records: %w", r.missingLocked())
	}
	size := 0
	for _, key := range r.local.keysFrom(prefix, after) {
		if limit > 0 && size > limit {
			return recs, true, nil
		}
		e := r.local.entries[key]
		size += len(e.Value) + len(key)
		recs = append(recs, e.record(key))
	}
	return recs, false, nil
}

// lock takes a key's lock and returns the function that gives it back.
func (r *Records) lock(ctx context.Context, key string) (unlock func(), err error) {
	l := r.locks[maphash.String(r.seed, key)%uint64(len(r.locks))]
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot lock record %s: %w", key, context.Cause(ctx))
	}
}

func (r *Records) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.local.keys)
}
