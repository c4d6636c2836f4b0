package fusefs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sync/errgroup"

	"berth/fusefs/cache"
	"berth/fusefs/index"
	"berth/fusefs/object"
	bucketsync "berth/fusefs/sync"
)

// Options say what to serve and where. StateDir, Store and Mountpoint are needed.
type Options struct {
	StateDir   string // index/ and cache/ are below it; one FS at a time
	Store      object.Store
	Mountpoint string // an existing directory outside StateDir

	// WholeBucket makes the mount's root the root of the bucket. Without it the
	// root is synthetic, and AttachTree makes trees appear.
	WholeBucket bool

	Owner *Owner // if set, every inode shows it and no other can be given; nil keeps owners

	// Revalidate is how long what the store said may be believed. Zero means that
	// everyone who writes to the bucket is known to this FS.
	Revalidate time.Duration

	HistoryAge time.Duration // for which earlier contents and checkpoints are kept; 0 = 30 days

	NoPassthrough bool   // serve reads and writes through this process
	IDMapped      bool   // allow id-mapped mounts of the mount (kernel 6.12)
	Quotas        Quotas // of trees; zero = none
	BucketQuota   Quota  // of WholeBucket
	CacheBytes    int64  // clean content is evicted above it; 0 = half of the volume's size
	FloorBytes    int64  // content leaves so much of the volume free; 0 = a 20th of it, at most 4 GiB

	// OverLimit is called with the name of a tree that is above its limit while
	// the kernel itself writes to its files and cannot be stopped: the cache's file
	// system is not ext4, or this process may not make files immutable. It is told
	// once for each such file, must not wait, and may be nil.
	OverLimit func(tree string)

	Debug bool // log each request

	// Guard is for a process that uses its mount itself; nil = there is none. It
	// ends with Close, or when Open returns an error.
	Guard *Guard

	Logger *slog.Logger     // nil = slog.Default
	Now    func() time.Time // the clock of attributes; nil = the kernel's

	wrap    func(fuse.RawFileSystem) fuse.RawFileSystem // lets a test see the requests
	maxOpen int                                         // of a test: content files open at once; 0 = by the limit of descriptors
	boot    string                                      // of a test: names the run of the machine; "" = as the kernel does

	storeWait time.Duration // of a test; 0 = the constant
	spaceWait time.Duration
	near      int64
}

// An FS is a mounted file system. Open makes it, Close ends it.
//
// Lock order: openFile.mu, the turn of a tree, index.DB.Update, then any of the leaf locks below and
// those of opens, synth, feed and notifier, none of which is held together with
// another. Nothing waits for the store, or writes to the kernel, under a lock;
// openFile.mu alone is held over work on the local disk.
type FS struct {
	opts  Options
	log   *slog.Logger
	now   func() time.Time
	db    *index.DB
	cache *cache.Cache
	sync  *bucketsync.Syncer

	server      *fuse.Server
	passthrough atomic.Bool
	started     time.Time

	opens    openTable
	settles  settleQueue
	dirs     dirTable
	synth    synthTable
	trees    treeTable
	feed     *feed
	notify   *notifier
	orphans  orphanTable
	saves    saveTable
	replaced replacedSet
	discards discardSet

	syncing sync.Mutex    // makes syncReplaced one at a time; taken before openFile.mu
	safeAt  atomic.Uint64 // index.DB.Commits of what is known to be on the disk

	space    space
	turns    turnTable
	freezer  freezer
	evictNow chan struct{}

	attach    attachTable
	evicting  sync.Mutex   // makes evict one at a time; taken before openFile.mu
	cacheUsed atomic.Int64 // bytes of content files, as of the last look

	ctx    context.Context // ends when Close begins to give up
	cancel context.CancelCauseFunc
	group  *errgroup.Group

	closeOnce sync.Once
	closeErr  error
}

var errClosed = errors.New("the file system was closed")

// Open opens the state directory, finishes what an earlier process left undone,
// mounts, and serves until Close. A state directory that another process has
// open is refused with an error matching fs.ErrExist. ctx bounds opening only.
func Open(ctx context.Context, o Options) (*FS, error) {
	f, err := open(ctx, o)
	if err != nil && o.Guard != nil {
		err = errors.Join(err, o.Guard.Close())
	}
	return f, err
}

func open(ctx context.Context, o Options) (*FS, error) {
	f, err := newFS(o)
	if err != nil {
		return nil, err
	}
	if err = f.openSync(); err == nil {
		err = f.recover()
	}
	if err == nil {
		f.sync.Start()
		err = f.mount()
	}
	if err != nil {
		f.cancel(err)
		return nil, errors.Join(err, f.group.Wait(), f.closeState(ctx))
	}
	f.group.Go(f.watch)
	f.group.Go(f.settleLoop)
	f.group.Go(f.evictLoop)
	f.group.Go(f.keepLoop)
	f.group.Go(f.meterLoop)
	f.group.Go(f.safeLoop)
	return f, nil
}

func newFS(o Options) (*FS, error) {
	if err := checkDirs(o.StateDir, o.Mountpoint); err != nil {
		return nil, err
	}
	f := &FS{opts: o, log: o.Logger, now: o.Now, started: time.Now()}
	if f.log == nil {
		f.log = slog.Default()
	}
	if f.now == nil {
		f.now = coarseNow
	}
	if f.opts.HistoryAge <= 0 {
		f.opts.HistoryAge = defaultHistoryAge
	}
	var err error
	if f.db, err = index.Open(filepath.Join(o.StateDir, "index"), f.log); err != nil {
		return nil, err
	}
	if f.cache, err = cache.Open(filepath.Join(o.StateDir, "cache")); err != nil {
		return nil, errors.Join(err, f.db.Close())
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	f.cancel = cancel
	f.group, f.ctx = errgroup.WithContext(ctx)
	f.opens.init(newOpenBudget(o))
	f.settles.init()
	f.dirs.init()
	f.orphans.init()
	f.replaced.init()
	if !o.WholeBucket {
		f.synth.init()
	}
	f.feed = newFeed(feedSize)
	f.notify = newNotifier()
	f.evictNow = make(chan struct{}, 1)
	if err := errors.Join(f.space.init(f.cache, o.FloorBytes), f.loadTrees(), f.loadSaves()); err != nil {
		cancel(err)
		return nil, errors.Join(err, f.db.Close())
	}
	return f, nil
}

// Close stops new work, uploads what is waiting until ctx ends, unmounts and
// closes. What is not uploaded then stays journalled and goes on at the next
// Open. It can be called more than once; later calls return the first result.
func (f *FS) Close(ctx context.Context) error {
	f.closeOnce.Do(func() { f.closeErr = f.close(ctx) })
	return f.closeErr
}

func (f *FS) close(ctx context.Context) error {
	err := f.unmount()
	f.notify.close()
	f.cancel(errClosed)
	f.feed.close()
	if werr := f.group.Wait(); werr != nil {
		err = errors.Join(err, werr)
	}
	// No request is under way any more.
	f.settleAll()
	for ino := range f.freezer.all() { // that others still have mapped
		f.thaw(ino)
	}
	for _, ino := range f.orphans.numbers() { // of a kernel that will not tell
		f.orphans.forget(ino)
		f.endOrphan(ino)
	}
	if g := f.opts.Guard; g != nil {
		err = errors.Join(err, g.Close())
	}
	f.makeSafe()
	return errors.Join(err, f.closeState(ctx))
}

// closeState ends sync and closes the index.
func (f *FS) closeState(ctx context.Context) error {
	var err error
	if f.sync != nil {
		f.sync.Close(ctx)
	}
	f.opens.closeAll()
	if cerr := errors.Join(f.noteEnd(), f.db.Close()); cerr != nil {
		err = errors.Join(err, fmt.Errorf("cannot close file system: %w", cerr))
	}
	return err
}

// Done is closed when the mount is gone, be it by Close or by someone else's
// umount.
func (f *FS) Done() <-chan struct{} { return f.notify.unmounted }

// Passthrough says whether the kernel reads and writes content files itself.
func (f *FS) Passthrough() bool { return f.passthrough.Load() }
