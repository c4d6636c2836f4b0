package sync

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/fusefs/index"
	"berth/fusefs/object"
)

// clearOverlap makes way for a key that the store cannot keep beside others,
// which no name has any more: "a" beside "a/b".
func (s *Syncer) clearOverlap(ctx context.Context, key string, chain []index.Ino) error {
	cleared := 0
	for i := range len(key) {
		if key[i] != '/' {
			continue
		}
		if r, ok, err := s.db.Remote(key[:i]); err != nil {
			return err
		} else if ok && r.ETag != "" {
			n, err := s.clearKey(ctx, r, chain)
			if err != nil {
				return err
			}
			cleared += n
		}
	}
	if !strings.HasSuffix(key, "/") {
		below, err := s.db.RemotesAfter(key+"/", "", doomPage)
		if err != nil {
			return err
		}
		slices.Reverse(below) // markers after what is below them
		for _, r := range below {
			n, err := s.clearKey(ctx, r, chain)
			if err != nil {
				return err
			}
			cleared += n
		}
	}
	if cleared == 0 {
		return fmt.Errorf("cannot store %q: %w", key, object.ErrOverlap)
	}
	return nil
}

// clearKey deletes one object that is in the way, and returns 1 if it did.
func (s *Syncer) clearKey(ctx context.Context, r index.Remote, chain []index.Ino) (int, error) {
	release, ok := s.claims.key(r.Key)
	if !ok {
		return 0, errTaken
	}
	defer release()
	r, ok, err := s.db.Remote(r.Key)
	if err != nil || !ok {
		return 1, err
	}
	p, err := s.find(r.Key)
	if err != nil || p.holds() {
		return 0, err
	}
	if r.Intent.Gen != 0 {
		if r, err = s.settleDoomed(ctx, r); err != nil {
			return 0, err
		}
	}
	if r.ETag == "" {
		return 1, s.forget(r)
	}
	if !strings.HasSuffix(r.Key, "/") && r.Ino != 0 {
		if err := s.makeRoom(ctx, r, chain); err != nil {
			return 0, err
		}
	}
	return 1, s.deleteObject(ctx, r)
}
