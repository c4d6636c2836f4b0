package sync

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/fusefs/index"
)

// Who walks through names that only the bucket has would wait for the store at
// each. So a miss, a name that somebody had to wait for, has its neighbours
// fetched ahead: from the second one in a directory, and the more the more misses
// there were, so that what is fetched in vain stays in proportion.
const (
	aheadStat    = 16 << 10  // so small a file is fetched when its attributes are asked for: it is one request in any case
	aheadOpen    = 256 << 10 // and one so small when its neighbours are read
	aheadPerMiss = 32        // names of one run for each miss
	aheadNames   = 2048      // of one run
	aheadBytes   = 64 << 20  // of content of one run
	aheadDirs    = 64        // listings of one run
	aheadRuns    = 4         // at a time
	aheadLeast   = 4         // requests of one run at a time, at a store that answers at once
	aheadMost    = 64        // and at one that is far
	aheadPage    = 256       // names read from the index at once
	aheadAge     = 10 * time.Second
	aheadKnown   = 1024 // directories whose misses are remembered
)

// An ahead remembers where misses were, and bounds the requests made ahead.
type ahead struct {
	runs    errgroup.Group
	latency atomic.Int64 // of the store, nanoseconds, smoothed

	mu     sync.Mutex // protects the fields below
	free   *sync.Cond // a request ended
	flying int
	dirs   map[index.Ino]*walk
}

func (a *ahead) init() {
	a.runs.SetLimit(aheadRuns)
	a.free = sync.NewCond(&a.mu)
	a.dirs = make(map[index.Ino]*walk)
}

// A walk is what is known of those who go through a directory.
type walk struct {
	at      time.Time // of the last miss
	misses  int
	read    bool // files were opened, not only looked at
	dirs    bool // its directories were listed
	deep    bool // and the files in them gone through
	running bool
}

// width is how many requests are made at a time: enough to hide the way to the
// store, and few where the store is near and would only take the processor.
func (a *ahead) width() int {
	return int(min(max(2*a.latency.Load()/int64(time.Millisecond), aheadLeast), aheadMost))
}

// request makes one request ahead, when its turn has come.
func (a *ahead) request(ctx context.Context, do func(context.Context) error) error {
	a.mu.Lock()
	for a.flying >= a.width() {
		a.free.Wait()
	}
	a.flying++
	a.mu.Unlock()
	err := context.Cause(ctx)
	if err == nil {
		begin := time.Now()
		err = do(ctx)
		old := a.latency.Load()
		a.latency.Store(old + (int64(time.Since(begin))-old)/8)
	}
	a.mu.Lock()
	a.flying--
	a.free.Broadcast()
	a.mu.Unlock()
	return err
}

// miss notes that somebody waits for names in a directory and returns the walk that
// is to be run now, if any; end is called when it was.
func (a *ahead) miss(dir index.Ino, seen walk) (w walk, end func(), run bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.dirs[dir]
	if k == nil || !k.running && seen.at.Sub(k.at) > aheadAge {
		if len(a.dirs) >= aheadKnown {
			clear(a.dirs)
		}
		k = new(walk)
		a.dirs[dir] = k
	}
	k.at = seen.at
	k.misses += seen.misses
	k.read, k.dirs = k.read || seen.read, k.dirs || seen.dirs
	if k.running || k.misses < 2 {
		return walk{}, nil, false
	}
	k.running = true
	return *k, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		k.running = false
	}, true
}

// deepen notes that the files in one of a directory's directories are gone through.
func (a *ahead) deepen(dir index.Ino, read bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if k := a.dirs[dir]; k != nil {
		k.deep, k.read = true, k.read || read
	}
}

// missed is called before somebody waits for the store to tell of an inode or to
// give its content.
func (s *Syncer) missed(n *index.Inode, read bool) {
	if read && n.Size > aheadOpen {
		return
	}
	names, err := s.db.Names(n)
	if err != nil || len(names) == 0 || s.ctx.Err() != nil {
		return
	}
	name := names[0]
	w, end, run := s.ahead.miss(name.Parent, walk{at: s.now(), misses: 1, read: read, dirs: n.IsDir()})
	if !run {
		return
	}
	if dir, err := s.db.Inode(name.Parent); err == nil && n.IsFile() {
		s.ahead.deepen(dir.Parent, read)
	}
	started := s.ahead.runs.TryGo(func() error {
		defer end()
		// What fails here fails again for the one who needs it.
		_ = s.runAhead(s.ctx, name, w)
		return nil
	})
	if !started {
		end()
	}
}

// A run is one round of fetching ahead in a directory.
type run struct {
	walk
	names, dirs int // what may still be looked at
	bytes       int64
}

// runAhead fetches the neighbours that follow a name, then those before it.
func (s *Syncer) runAhead(ctx context.Context, name index.Name, w walk) error {
	r := &run{walk: w, names: min(w.misses*aheadPerMiss, aheadNames), dirs: aheadDirs, bytes: aheadBytes}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.ahead.width())
	for _, after := range []string{name.Name, ""} {
		for more := true; more && r.names > 0 && ctx.Err() == nil; {
			entries, err := s.db.Entries(name.Parent, after, aheadPage)
			if err != nil {
				return errors.Join(err, group.Wait())
			}
			more = len(entries) == aheadPage
			for _, e := range entries {
				if after = e.Name; r.names <= 0 {
					break
				}
				r.names--
				if work := s.aheadOf(e, r); work != nil {
					group.Go(func() error { return work(ctx) })
				}
			}
		}
	}
	return group.Wait()
}

// aheadOf returns what is to be done for a name, nil for nothing.
func (s *Syncer) aheadOf(e index.Entry, r *run) func(context.Context) error {
	n, err := s.db.Inode(e.Ino)
	switch {
	case err != nil:
		return nil
	case n.IsDir():
		if !r.walk.dirs || n.Listed != 0 || r.dirs == 0 {
			return nil
		}
		r.dirs--
		return func(ctx context.Context) error { return s.listAhead(ctx, n.Ino, r.walk) }
	case !n.Remote:
		return nil
	}
	limit := int64(aheadStat)
	if r.read {
		limit = aheadOpen
	}
	work := s.describeNow
	switch {
	case n.Size <= limit && n.Size <= r.bytes && s.room():
		r.bytes -= n.Size
		work = s.fetchNow
	case !n.Bare:
		return nil
	}
	return func(ctx context.Context) error {
		return s.ahead.request(ctx, func(ctx context.Context) error { return work(ctx, n.Ino) })
	}
}

// listAhead lists a directory beside others that were listed, and goes through it
// if those were gone through.
func (s *Syncer) listAhead(ctx context.Context, dir index.Ino, like walk) error {
	err := s.ahead.request(ctx, func(ctx context.Context) error { return s.listNow(ctx, dir) })
	if err != nil || !like.deep {
		return err
	}
	w, end, run := s.ahead.miss(dir, walk{at: like.at, misses: like.misses, read: like.read})
	if !run {
		return nil
	}
	defer end()
	return s.runAhead(ctx, index.Name{Parent: dir}, w)
}
