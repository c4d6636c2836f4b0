package sync

import (
	"fmt"
	"sync"
	"time"

	"berth/fusefs/index"
)

// Bounds of the clock, in milliseconds.
const (
	clockLease = 500  // how far stamps run before the high-water mark is written again
	maxSkew    = 5000 // how far a stamp of another gateway can push the clock ahead
)

const clockSetting = "sync/clock"

// A Clock gives the stamps of one gateway: a hybrid logical clock. Each stamp is
// later than all that it gave or observed before, also over restarts and when
// the wall clock is set back.
type Clock struct {
	db      *index.DB
	gateway string
	now     func() time.Time

	mu      sync.Mutex // protects the fields below
	last    uint64     // the last reading: 48 bits of milliseconds, 16 of counter
	granted uint64     // milliseconds up to which the index says that stamps may be out
}

func newClock(db *index.DB, gateway string, now func() time.Time) (*Clock, error) {
	if s, err := index.ParseStamp(index.Stamp{Time: 1, Gateway: gateway}.String()); err != nil || s.Gateway == "" {
		return nil, fmt.Errorf("invalid gateway id %.40q: 1 to 16 of [a-z0-9] are allowed", gateway)
	}
	granted, err := db.Setting(clockSetting)
	if err != nil {
		return nil, err
	}
	return &Clock{db: db, gateway: gateway, now: now, last: granted<<16 | 0xffff, granted: granted}, nil
}

// Now returns a new stamp. It can be called inside index.Update.
func (c *Clock) Now() index.Stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wall := uint64(max(c.now().UnixMilli(), 0)) << 16; wall > c.last {
		c.last = wall
	} else {
		c.last++
	}
	c.grantLocked()
	return index.Stamp{Time: c.last, Gateway: c.gateway}
}

// Observe makes later stamps later than one of another gateway. A stamp too far
// in the future counts as one at the edge of what clocks may differ.
func (c *Clock) Observe(s index.Stamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := uint64(max(c.now().UnixMilli(), 0)+maxSkew) << 16
	if t := min(s.Time, limit); t > c.last {
		c.last = t
		c.grantLocked()
	}
}

// grantLocked writes a new high-water mark before a stamp above the old one is
// used. If the index cannot be written no commit will carry the stamp either.
func (c *Clock) grantLocked() {
	if ms := c.last >> 16; ms >= c.granted {
		c.granted = ms + clockLease
		_ = c.db.PutSettingNow(clockSetting, c.granted)
	}
}
