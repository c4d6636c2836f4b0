package mounts

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"berth"
	"berth/fusefs/object"
)

// storeTime is how long one change of a record may take.
const storeTime = 30 * time.Second

// Put implements berth.Records.
func (r *Records) Put(ctx context.Context, rec berth.Record) (version string, err error) {
	if err := checkRecord(rec); err != nil {
		return "", err
	}
	var value bytes.Buffer
	if err := json.Compact(&value, rec.Value); err != nil {
		return "", fmt.Errorf("cannot put record %s: %w", rec.Key, err)
	}
	rec.Value = value.Bytes()
	version = rand.Text()
	body, err := encode(envelope{rec.Key, version, rec.Value})
	if err != nil {
		return "", fmt.Errorf("cannot put record %s: %w", rec.Key, err)
	}
	err = r.change(ctx, rec.Key, rec.Version, version, func(ctx context.Context, etag string) error {
		o := object.PutOptions{ContentType: "application/json"}
		if r.opts.Abilities.PutIfMatch {
			o.IfMatch = etag
		}
		o.IfNoneMatch = etag == "" && r.opts.Abilities.PutIfNoneMatch
		info, err := r.opts.Store.Put(ctx, objectKey(rec.Key), bytes.NewReader(body), int64(len(body)), o)
		if err == nil {
			r.apply(rec.Key, &entry{Version: version, ETag: info.ETag, Value: rec.Value})
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("cannot put record %s: %w", rec.Key, err)
	}
	return version, nil
}

// Delete implements berth.Records.
func (r *Records) Delete(ctx context.Context, key, version string) error {
	if err := checkRecordKey(key); err != nil {
		return err
	}
	if version == "" {
		return fmt.Errorf("cannot delete record %s: no version is given: %w", key, fs.ErrInvalid)
	}
	err := r.change(ctx, key, version, "", func(ctx context.Context, etag string) error {
		if !r.opts.Abilities.DeleteIfMatch {
			etag = ""
		}
		err := r.opts.Store.Delete(ctx, objectKey(key), etag)
		if err == nil {
			r.apply(key, nil)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot delete record %s: %w", key, err)
	}
	return nil
}

func objectKey(key string) string { return recordPrefix + key + recordSuffix }

// change carries out one change of a record that must still be at the version
// from and will be at the version to. do is given the ETag of the object.
func (r *Records) change(ctx context.Context, key, from, to string, do func(ctx context.Context, etag string) error) error {
	unlock, err := r.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	// Begun is finished: a caller that goes away leaves no doubt behind.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), storeTime, berth.ErrUnavailable)
	defer cancel()
	etag, err := r.current(ctx, key, from)
	if err != nil {
		return err
	}
	err = do(ctx, etag)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, object.ErrPrecondition), errors.Is(err, berth.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
	default:
		return err // the store has refused it
	}
	// The answer may have been lost, or be that to the store library's second try.
	r.setDoubt(key, true)
	now, rerr := r.refreshLocked(ctx, key)
	switch {
	case rerr != nil:
		return errors.Join(berth.ErrUnavailable, err)
	case now == to:
		return nil
	case errors.Is(err, object.ErrPrecondition):
		return berth.ErrConflict
	}
	return err
}

// current returns the ETag of a record that must be at the version.
func (r *Records) current(ctx context.Context, key, version string) (etag string, err error) {
	r.mu.Lock()
	doubt := r.doubt[key]
	r.mu.Unlock()
	if doubt {
		if _, err := r.refreshLocked(ctx, key); err != nil {
			return "", err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.local.entries[key]
	switch {
	case !ok && version == "":
		return "", nil
	case !ok:
		return "", r.missingLocked()
	case e.Version != version:
		return "", berth.ErrConflict
	}
	return e.ETag, nil
}

func (r *Records) setDoubt(key string, in bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in {
		r.doubt[key] = true
	} else {
		delete(r.doubt, key)
	}
}

// apply changes the local copy; nil removes the record.
func (r *Records) apply(key string, e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.doubt, key)
	// The store has the truth: a start reads again what could not be written here.
	if err := r.local.set(key, e); err != nil {
		r.log.Warn("Cannot write the local copy of a record", "key", key, "cause", err)
	}
}
