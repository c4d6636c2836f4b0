package sync

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/fusefs/object"
)

// Bounds of the clean-up of the history.
const (
	cleanEvery   = time.Hour
	cleanPages   = 20   // listed in one pass
	cleanAtOnce  = 4    // deletes
	cleanBatch   = 5000 // deletes in one pass
	mostVersions = 500  // of one path; the earliest go
)

// cleanLoop deletes what the history need not keep any more until ctx ends, a part
// of it in each pass.
func (s *Syncer) cleanLoop(ctx context.Context) {
	timer := time.NewTicker(cleanEvery)
	defer timer.Stop()
	for after := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next, err := s.cleanHistory(ctx, after)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("Cannot clean up the history", "cause", err)
			continue
		}
		after = next
	}
}

// cleanHistory looks at the versions behind a key of the history and deletes those
// that are too old or too many of their path. next is where to go on, "" at the
// end.
func (s *Syncer) cleanHistory(ctx context.Context, after string) (next string, err error) {
	c := cleaning{s: s, old: s.now().Add(-s.historyAge), of: make(map[string][]string)}
	c.group, ctx = errgroup.WithContext(ctx)
	c.group.SetLimit(cleanAtOnce)
	o := object.ListOptions{Prefix: historyPrefix, After: after}
	for range cleanPages {
		page, err := s.store.List(ctx, o)
		if err != nil {
			return after, errors.Join(err, c.group.Wait())
		}
		for _, info := range page.Objects {
			if !c.look(ctx, info) {
				return next, c.group.Wait()
			}
			next = info.Key
		}
		if o.After = page.Next; o.After == "" {
			next = ""
			break
		}
	}
	return next, c.group.Wait()
}

// A cleaning is one pass.
type cleaning struct {
	s       *Syncer
	old     time.Time
	group   *errgroup.Group
	deleted int
	of      map[string][]string // the versions of each path that stay, the earliest first
}

// look deletes an object of the history if it is one version too much; false says
// that this pass has done enough.
func (c *cleaning) look(ctx context.Context, info object.Info) bool {
	key, _, ok := toVersion(info)
	if !ok {
		return true
	}
	gone := info.Key
	if !info.LastModified.Before(c.old) {
		c.of[key] = append(c.of[key], info.Key)
		if len(c.of[key]) <= mostVersions {
			return true
		}
		gone, c.of[key] = c.of[key][0], c.of[key][1:]
	}
	if c.deleted++; c.deleted > cleanBatch {
		return false
	}
	c.group.Go(func() error {
		err := c.s.store.Delete(ctx, gone, "")
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return true
}
