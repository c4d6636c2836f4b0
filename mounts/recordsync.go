package mounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/fusefs/object"
)

// follow brings the local copy up to date until ctx ends: once after a start,
// again and again if others write to the store, and whenever the outcome of a
// change is not known.
func (r *Records) follow(ctx context.Context, fresh bool) {
	defer close(r.done)
	wait := time.Duration(0)
	for away := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = r.opts.Poll
		start := time.Now()
		var err error
		if !fresh {
			err = r.refreshAll(ctx)
		} else {
			err = r.settleDoubts(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && !away {
			r.log.Warn("Cannot read records from the store, trying again", "cause", err)
		}
		away = err != nil
		if err == nil {
			fresh = r.opts.Exclusive
		}
		// Many records take long to list: that must not be all that is done.
		wait = max(wait, 20*time.Since(start))
	}
}

// refreshAll makes the local copy equal to the store.
func (r *Records) refreshAll(ctx context.Context) error {
	stale, err := r.stale(ctx)
	if err != nil {
		return err
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for key := range stale {
		group.Go(func() error { return r.refresh(gctx, key) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.local.setComplete()
}

// stale returns the keys of records that are not the same here and in the store.
func (r *Records) stale(ctx context.Context) (map[string]bool, error) {
	r.mu.Lock()
	stale := make(map[string]bool, len(r.local.keys))
	for _, key := range r.local.keys {
		stale[key] = true
	}
	r.mu.Unlock()
	for o := (object.ListOptions{Prefix: recordPrefix}); ; {
		page, err := r.opts.Store.List(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("cannot list records in the store: %w", err)
		}
		r.mu.Lock()
		for _, info := range page.Objects {
			key, ok := strings.CutSuffix(strings.TrimPrefix(info.Key, recordPrefix), recordSuffix)
			if !ok || checkRecordKey(key) != nil {
				continue // not a record
			}
			if r.spoilt[key] == info.ETag {
				continue
			}
			if e, have := r.local.entries[key]; have && e.ETag == info.ETag && !r.doubt[key] {
				delete(stale, key)
			} else {
				stale[key] = true
			}
		}
		r.mu.Unlock()
		if o.After = page.Next; page.Next == "" {
			return stale, nil
		}
	}
}

func (r *Records) settleDoubts(ctx context.Context) error {
	r.mu.Lock()
	keys := make([]string, 0, len(r.doubt))
	for key := range r.doubt {
		keys = append(keys, key)
	}
	r.mu.Unlock()
	for _, key := range keys {
		if err := r.refresh(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func (r *Records) refresh(ctx context.Context, key string) error {
	unlock, err := r.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = r.refreshLocked(ctx, key)
	return err
}

// refreshLocked reads a record from the store and returns its version, "" if it
// is not there. The key's lock is held.
func (r *Records) refreshLocked(ctx context.Context, key string) (version string, err error) {
	e, err := r.fetch(ctx, key)
	if err != nil {
		return "", err
	}
	r.apply(key, e)
	if e == nil {
		return "", nil
	}
	return e.Version, nil
}

// fetch returns a record of the store, nil if it is not there or is none. An
// object that someone has spoilt must not keep the others from being read.
func (r *Records) fetch(ctx context.Context, key string) (*entry, error) {
	body, info, err := r.opts.Store.Get(ctx, objectKey(key), object.GetOptions{})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read record %s: %w", key, err)
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxEnvelope+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read record %s: %w", key, err)
	}
	var env envelope
	err = json.Unmarshal(data, &env)
	if err != nil || env.Key != key || env.Version == "" || len(env.Value) > berth.MaxRecord {
		r.log.Warn("Cannot read a record: its object was not written by berth", "object", objectKey(key), "cause", err)
		r.mu.Lock()
		r.spoilt[key] = info.ETag
		r.mu.Unlock()
		return nil, nil
	}
	return &entry{Version: env.Version, ETag: info.ETag, Value: env.Value}, nil
}
