package api

import (
	"context"
	"errors"
	"testing"

	"berth"
)

// brokenPuts are records of which some cannot be changed.
type brokenPuts struct {
	*memRecords
	broken func(berth.Record) bool
}

func (b *brokenPuts) Put(ctx context.Context, rec berth.Record) (string, error) {
	if b.broken != nil && b.broken(rec) {
		return "", errors.New("broken")
	}
	return b.memRecords.Put(ctx, rec)
}

// TestRotationBrokenOff: once a token was to be replaced it is never good again,
// even if the exchange could not be finished.
func TestRotationBrokenOff(t *testing.T) {
	records := &brokenPuts{}
	g := newGateway(t, func(o *Options) {
		records.memRecords = o.Records.(*memRecords)
		o.Records = records
	})
	g.do(g.operator, "PUT", "/v1/workspaces/acme", "{}").ok(200, nil)
	for _, tt := range []struct{ by, path, old string }{
		{g.admin, "/v1/members/ann", g.ann},
		{g.operator, "/v1/workspaces/acme", g.admin},
	} {
		g.do(tt.old, "GET", "/v1/me", "").ok(200, nil)
		records.broken = func(rec berth.Record) bool { return rec.Key == tokenKey(HashToken(tt.old)) }
		if a := g.do(tt.by, "PUT", tt.path, `{"rotate":true}`); a.status != 500 {
			t.Errorf("%s: status %d, want 500", a.what, a.status)
		}
		records.broken = nil
		g.do(tt.old, "GET", "/v1/me", "").refused(401, "unauthorized")
	}
}
