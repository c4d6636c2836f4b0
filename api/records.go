package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"berth"
)

// records reads and changes the installation's records as the types below.
type records struct{ berth.Records }

type workspaceRecord struct {
	Workspace berth.ID  `json:"workspace"`
	Title     string    `json:"title,omitempty"`
	Created   time.Time `json:"created"`
	Token     string    `json:"token_sha256"` // the admin's
}

type memberRecord struct {
	Workspace berth.ID   `json:"workspace"`
	User      berth.ID   `json:"user"`
	Created   time.Time  `json:"created"`
	Token     string     `json:"token_sha256"`
	Removed   *time.Time `json:"removed,omitempty"`
	// SignInsAfter makes older sign-in links and cookies invalid: those of the
	// time before the member was removed and came back.
	SignInsAfter time.Time `json:"signins_after,omitzero"`
}

type keyRecord struct {
	Workspace berth.ID   `json:"workspace"`
	ID        berth.ID   `json:"id"`
	Label     string     `json:"label,omitempty"`
	Created   time.Time  `json:"created"`
	Token     string     `json:"token_sha256"`
	Revoked   *time.Time `json:"revoked,omitempty"`
}

type tokenRecord struct {
	Kind      kind     `json:"kind"`
	Workspace berth.ID `json:"workspace,omitempty"`
	User      berth.ID `json:"user,omitempty"`
	Key       berth.ID `json:"key_id,omitempty"`
	Revoked   bool     `json:"revoked,omitempty"`
}

// signInRecord is made when a sign-in link is used, under its nonce: a second
// use finds it. It lives as long as the session that began with it.
type signInRecord struct {
	Workspace berth.ID  `json:"workspace"`
	User      berth.ID  `json:"user"`
	Started   time.Time `json:"started"`
	Expires   time.Time `json:"expires"`
	Ended     bool      `json:"ended,omitempty"`
}

type chatRecord struct {
	Chat    berth.ID   `json:"chat"`
	User    berth.ID   `json:"user,omitempty"`
	Key     berth.ID   `json:"key_id,omitempty"`
	EndUser berth.ID   `json:"end_user,omitempty"`
	Machine berth.ID   `json:"machine"`
	Title   string     `json:"title,omitempty"`
	Experts []berth.ID `json:"experts"`
	TZ      string     `json:"tz,omitempty"`
	Created time.Time  `json:"created"`
	// Destroyed is set when the machine was destroyed: the next use takes a new id.
	Destroyed bool `json:"destroyed,omitempty"`
	// Deleting is set while the chat is being deleted: only that can go on.
	Deleting bool `json:"deleting,omitempty"`
}

func workspaceKey(ws berth.ID) string    { return "workspaces/" + string(ws) }
func memberKey(ws, user berth.ID) string { return fmt.Sprintf("members/%s/%s", ws, user) }
func keyKey(ws, id berth.ID) string      { return fmt.Sprintf("keys/%s/%s", ws, id) }
func tokenKey(hash string) string        { return "tokens/" + hash }
func signInKey(nonce berth.ID) string    { return "signins/" + string(nonce) }

func decodeRecord[T any](rec berth.Record) (T, error) {
	var v T
	if err := json.Unmarshal(rec.Value, &v); err != nil {
		return v, fmt.Errorf("cannot decode record %s: %v", rec.Key, err)
	}
	return v, nil
}

// read returns the record of a key and its version.
func read[T any](ctx context.Context, r records, key string) (T, string, error) {
	rec, err := r.Get(ctx, key)
	if err != nil {
		var none T
		return none, "", err
	}
	v, err := decodeRecord[T](rec)
	return v, rec.Version, err
}

// list returns the records whose keys begin with prefix, by key.
func list[T any](ctx context.Context, r records, prefix string) ([]T, error) {
	recs, err := r.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(recs))
	for i, rec := range recs {
		if out[i], err = decodeRecord[T](rec); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// errUnchanged is returned by a change function to leave the record as it is.
var errUnchanged = errors.New("the record stays as it is")

// update changes a record: change gets the present value, or nil if there is
// none, and returns the new one. It is called again when someone else changed
// the record meanwhile, so it must have no effect outside.
func update[T any](ctx context.Context, r records, key string, change func(*T) (T, error)) (T, error) {
	const attempts = 16
	for range attempts {
		var now *T
		v, version, err := read[T](ctx, r, key)
		switch {
		case err == nil:
			now = &v
		case !errors.Is(err, fs.ErrNotExist):
			return v, err
		}
		next, err := change(now)
		if errors.Is(err, errUnchanged) {
			return v, nil
		} else if err != nil {
			return v, err
		}
		value, err := json.Marshal(next)
		if err != nil {
			return v, fmt.Errorf("cannot encode record %s: %w", key, err)
		}
		_, err = r.Put(ctx, berth.Record{Key: key, Version: version, Value: value})
		if !errors.Is(err, berth.ErrConflict) {
			return next, err
		}
	}
	return *new(T), fmt.Errorf("cannot change record %s in %d attempts: %w", key, attempts, berth.ErrConflict)
}

// remove deletes a record whatever its version. One that is not there is fine.
func remove(ctx context.Context, r records, key string) error {
	for {
		rec, err := r.Get(ctx, key)
		if err == nil {
			err = r.Delete(ctx, key, rec.Version)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, berth.ErrConflict) {
			return err
		}
	}
}

// addToken makes the record of a token.
func (s *Server) addToken(ctx context.Context, hash string, t tokenRecord) error {
	_, err := update(ctx, s.records, tokenKey(hash), func(*tokenRecord) (tokenRecord, error) { return t, nil })
	return err
}

// revokeToken ends a token and the requests made with it.
func (s *Server) revokeToken(ctx context.Context, hash string) error {
	_, err := update(ctx, s.records, tokenKey(hash), func(t *tokenRecord) (tokenRecord, error) {
		if t == nil || t.Revoked {
			return tokenRecord{}, errUnchanged
		}
		t.Revoked = true
		return *t, nil
	})
	if err == nil {
		s.cuts.cut(tokenName(hash), errRevoked)
	}
	return err
}
