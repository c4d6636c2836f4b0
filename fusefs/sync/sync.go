// Package sync keeps the bucket and the index of fusefs equal: it uploads what
// was written here, deletes what was removed, and takes over what others wrote.
//
// Model. The index says what the bucket should hold: under the key of each name
// of a file its generation of content and its attributes (desired), and in
// Remote records what was last seen or put there (actual). For each inode of the
// upload queue a worker makes actual equal to desired, name by name; then the
// keys on the doom list that no name needs any more are deleted. What to do is
// always read from the index, never remembered, so that after kill -9 the work
// goes on where it was.
//
// Guarantees. Every PUT onto a live key is conditional on what was last seen
// there and announced in the index by an Intent, so that a PUT whose answer is
// lost is recognised later by its stamps. Of two writers of one key the later
// stamp stays and the other goes to the history (history.go). An object of a
// renamed file is deleted only when the file is stored under its new name; where
// that cannot be (two files swapped their names, or the store cannot keep "a"
// beside "a/b"), a copy lies in the history meanwhile. One object is one
// generation: a file that is written to while it is read for upload is not
// uploaded.
//
// What somebody had to wait for has its neighbours fetched ahead (ahead.go): small
// files whole, of others the attributes, directories beside listed ones.
//
// A large object is read piece by piece (Blocks), all of one generation; when all
// of it is here it is content like any other.
//
// What is displaced is kept: before an object is overwritten or deleted whose
// content no file has any more, the store copies it to .berth/history/ (keep.go),
// under a name that tells its stamp and its end, so that doing it again after a
// kill changes nothing. Kept is what was current at a checkpoint; of the rest what
// was not overwritten within five minutes, or five minutes after the last one kept,
// and what was not deleted within a minute. Versions go after HistoryAge, and the
// earliest of a path that has more than 500. Objects above 1 GiB, machines' homes
// and directories that are made from other files (node_modules and such) have no
// history. What another writer overwrites in the bucket is not kept by us.
//
// Of a file of 64 MiB or more the bucket's generation is known by a digest for each
// block of 8 MiB; only blocks that differ are sent, and the object is composed of
// them and of itself (delta.go).
//
// What the users of the index have to keep to:
//   - who changes content or attributes sets Gen, Stamp and AttrStamp and
//     enqueues the inode in the same batch, then calls Kick;
//   - who removes or renames a name sets Doomed in the Remote of the old key if
//     there is one, in the same batch, and enqueues the inode if it has names
//     left; directories use a Move instead;
//   - who replaces the content of a Remote inode without Fetch commits
//     Remote=false before the first change of the cache file;
//   - Hooks.Busy is true from before the first change of a cache file until the
//     commit that tells of it.
//
// Limits. There are no tombstones yet: a foreign write of a key that was removed
// here brings the file back. Stores date objects by the second, so that another
// gateway's change of the attributes alone is not seen by a listing if it came in
// the second of the write before. Names in the bucket that no directory can show are
// hidden and counted.
package sync

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/fusefs/cache"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

// Hooks is what sync asks of the file system that serves the index. They are
// called from many goroutines, never with a lock held and never inside
// index.Update; they must not wait for store I/O.
type Hooks interface {
	// EntryChanged tells that the bucket changed what a directory has under a
	// name: it appeared, went, or is another inode now.
	EntryChanged(parent index.Ino, name string)
	// InodeChanged tells that attributes or content of an inode were taken from
	// the bucket. If it is Remote now, its cache file holds an earlier
	// generation and may be removed while nobody has it open.
	InodeChanged(ino index.Ino)
	// Publish passes on a change that came from the bucket. Seq is not set.
	Publish(c berth.Change)
	// Busy says whether the inode's cache file may be written to now.
	Busy(ino index.Ino) bool
	// InUse says whether anybody has the inode open, for reading or writing.
	InUse(ino index.Ino) bool
	// Nameless says whether the inode has lost its last name and somebody still
	// knows it. Unlike the others it is called inside index.Update.
	Nameless(ino index.Ino) bool
	// Snapshot returns a file with the frozen content of a Busy inode and the
	// generation it is; ok is false when there is none now. The caller calls
	// cleanup when it has been read.
	Snapshot(ino index.Ino) (path string, gen uint64, cleanup func(), ok bool)
}

// Options say what a Syncer works on. All but Owner, Revalidate, Room, Parallel,
// HistoryAge and Now are required.
type Options struct {
	DB         *index.DB
	Store      object.Store
	Cache      *cache.Cache
	Hooks      Hooks
	Gateway    string             // id of this gateway, 1 to 16 of [a-z0-9]
	Owner      bool               // owner and group are kept as metadata
	Revalidate time.Duration      // age at which a listing is refreshed; 0 = nobody else writes to the bucket
	Room       func() bool        // whether the cache has room for what nobody asked for yet; nil = always
	Space      func(n int64) bool // takes room on the disk for a piece of content, if there is any; nil = there is
	Parallel   int                // store requests for uploads at a time; 0 = 16
	HistoryAge time.Duration      // after which a version is deleted; 0 = 30 days
	Logger     *slog.Logger
	Now        func() time.Time // nil = time.Now
}

// Limits that are no options.
const (
	defaultParallel = 16
	defaultAge      = 30 * 24 * time.Hour
	debounce        = 100 * time.Millisecond // from a change to its upload, so that bursts go up once
)

// A Syncer is the work described in the package comment. Make it with New.
type Syncer struct {
	db         *index.DB
	store      *object.Watch
	cache      *cache.Cache
	hooks      Hooks
	log        *slog.Logger
	now        func() time.Time
	owner      bool
	revalidate time.Duration
	parallel   int
	historyAge time.Duration
	clock      *Clock

	claims             claims
	sched              *scheduler
	trees              trees
	touched            touched
	windows            windows
	hidden             hidden
	fetches, describes flights
	lists              flights
	ahead              ahead
	blocks             blockTable
	digests            flights
	room               func() bool
	space              func(n int64) bool
	health             health

	doomWake, moveWake chan struct{}
	doomHurry          chan struct{} // ends the rest between passes: somebody waits
	doomWork           atomic.Int64  // grows when the doom list may have got work
	changed            broadcast     // work got done: Flush looks again

	// ctx ends with Close, and with it all that runs for more than one caller.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex      // protects the fields below
	group   *errgroup.Group // nil before Start
	refresh *errgroup.Group
}

// New returns a Syncer that does nothing in the background until Start. Clock,
// Fetch, Describe and List can be used at once.
func New(o Options) (*Syncer, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Parallel <= 0 {
		o.Parallel = defaultParallel
	}
	if o.HistoryAge <= 0 {
		o.HistoryAge = defaultAge
	}
	clock, err := newClock(o.DB, o.Gateway, o.Now)
	if err != nil {
		return nil, err
	}
	s := &Syncer{
		db: o.DB, cache: o.Cache, hooks: o.Hooks,
		log: o.Logger, now: o.Now, owner: o.Owner, revalidate: o.Revalidate, parallel: o.Parallel, historyAge: o.HistoryAge, clock: clock, room: o.Room, space: o.Space,
		doomWake: make(chan struct{}, 1), moveWake: make(chan struct{}, 1),
		doomHurry: make(chan struct{}, 1), refresh: new(errgroup.Group),
	}
	s.lists.together, s.describes.together = true, true
	s.refresh.SetLimit(refreshers)
	s.ahead.init()
	if s.room == nil {
		s.room = func() bool { return true }
	}
	if s.space == nil {
		s.space = func(int64) bool { return true }
	}
	s.store = object.NewWatch(object.WithDeadline(o.Store, object.NewDeadlines()), s.storeBack)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.sched = newScheduler(o.DB, o.Now)
	s.trees.db = o.DB
	return s, nil
}

// Clock returns the clock whose stamps order the writes of this gateway.
func (s *Syncer) Clock() *Clock { return s.clock }

var errClosed = errors.New("the file system is closing")

// Start begins the work in the background, with all that an earlier process left.
func (s *Syncer) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.group != nil {
		return
	}
	s.group = new(errgroup.Group)
	s.sched.rescan()
	s.group.Go(func() error { s.dispatch(s.ctx); return nil })
	s.group.Go(func() error { s.doomLoop(s.ctx); return nil })
	s.group.Go(func() error { s.moveLoop(s.ctx); return nil })
	s.group.Go(func() error { s.cleanLoop(s.ctx); return nil })
	s.group.Go(func() error {
		if err := s.relist(s.ctx); err != nil && s.ctx.Err() == nil {
			s.log.Error("Cannot list all directories again", "cause", err)
		}
		return nil
	})
	s.KickMoves()
	s.KickDoomed()
}

// Close waits until all that is queued is in the bucket or ctx ends, then stops
// the work. What is left stays in the index for the next Start and is no error.
func (s *Syncer) Close(ctx context.Context) {
	s.mu.Lock()
	group := s.group
	s.mu.Unlock()
	if group != nil && ctx.Err() == nil {
		if err := s.Flush(ctx, "", nil); err != nil {
			s.log.Warn("Cannot upload everything before the stop, it is kept for the next start", "cause", err)
		}
	}
	s.cancel(errClosed)
	if group != nil {
		_ = group.Wait() // the loops return nothing
	}
	_ = s.refresh.Wait()
	_ = s.ahead.runs.Wait()
	s.fetches.running.Wait()
	s.digests.running.Wait()
	s.blocks.closeAll()
	s.describes.running.Wait()
	s.lists.running.Wait()
	s.store.Close()
}

// Kick tells that an inode was enqueued by a commit.
func (s *Syncer) Kick(ino index.Ino) {
	s.sched.touch()
	s.sched.kick(ino, debounce)
}

// Active tells that somebody uses the file system: a burst of changes goes on until
// its user rests.
func (s *Syncer) Active() { s.sched.burst.used.Store(s.now().UnixNano()) }

// Gone tells that a commit deleted an inode: nobody wants any more what an upload
// of it sends, which may be a great deal.
func (s *Syncer) Gone(ino index.Ino) { s.sched.drop(ino) }

// KickDoomed tells that a commit put a key on the doom list.
func (s *Syncer) KickDoomed() {
	s.doomWork.Add(1)
	wake(s.doomWake)
}

// KickMoves tells that a commit added a Move.
func (s *Syncer) KickMoves() { wake(s.moveWake) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
