package sync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"berth/fusefs/index"
	"berth/fusefs/object"
)

// Bounds of reading large objects piece by piece.
const (
	grain     = 128 << 10 // what is here or not
	spanBytes = 8 << 20   // of one request at most
	idleParts = 16        // objects read in part and not open, whose pieces are kept
)

// Large is the size above which a file need not be fetched whole before it is
// read: see OpenBlocks.
const Large = wholeFetch

// A table of Blocks, those in use and those whose pieces are kept for the next
// reader.
type blockTable struct {
	running sync.WaitGroup // of requests
	flying  atomic.Int64   // requests under way

	mu  sync.Mutex // protects the field below, and refs, idle and closed of each
	all map[index.Ino]*Blocks
}

// Blocks is the content of one generation of a large object, of which only some
// pieces are here yet. They lie in a sparse temp of the cache, which becomes the
// inode's content file when the last of them is there. All requests are pinned to
// one ETag. It can be used from many goroutines.
type Blocks struct {
	s    *Syncer
	ino  index.Ino
	size int64
	w    *os.File // the temp; closed when it is whole
	r    *os.File // the same for reading

	refs   int       // protected by blockTable.mu
	idle   time.Time // since when refs is 0
	closed bool

	changed broadcast // a piece came, or a request ended

	mu       sync.Mutex   // protects the fields below
	obj      index.Remote // the object; under another key after a rename
	ctx      context.Context
	cancel   context.CancelFunc // ends the requests, when nobody reads any more
	have     []uint64           // one bit for each grain
	left     int                // grains that are not here
	spans    []*span            // requests under way; they do not overlap
	streams  []stream
	gone     error // the object is not there any more; nothing more will come
	paid     bool  // who wants all of it has taken room for that
	filling  bool  // all of it is being fetched, whoever reads
	adopted  bool  // all is here, and was made the content file if adoptErr is nil
	adoptErr error
}

// OpenBlocks opens the content of a Remote file larger than Large for reading
// without fetching it whole. A file that is not Remote (any more) is errLocal.
// The caller closes it. Other errors are those of Fetch.
func (s *Syncer) OpenBlocks(ctx context.Context, ino index.Ino) (*Blocks, error) {
	var b *Blocks
	err := s.retake(ctx, ino, func(ctx context.Context, n *index.Inode, r index.Remote) error {
		if n.Bare {
			if err := s.describeNow(ctx, ino); err != nil {
				return err
			}
			return errChanged
		}
		var err error
		b, err = s.blocks.open(s, ino, r)
		return err
	})
	if err == nil && b == nil {
		err = ErrLocal
	}
	return b, err
}

// ErrLocal says that the content of a file is here.
var ErrLocal = errors.New("the content is here")

// open returns the Blocks of an inode's object, counted once more.
func (t *blockTable) open(s *Syncer, ino index.Ino, r index.Remote) (*Blocks, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.all[ino]
	if b != nil && b.isOther(r) {
		if b.refs > 0 {
			delete(t.all, ino) // its readers keep it
		} else {
			t.dropLocked(b)
		}
		b = nil
	}
	if b == nil {
		var err error
		if b, err = newBlocks(s, ino, r); err != nil {
			return nil, err
		}
		if t.all == nil {
			t.all = make(map[index.Ino]*Blocks)
		}
		t.all[ino] = b
	}
	if b.refs == 0 {
		b.mu.Lock()
		b.ctx, b.cancel = context.WithCancel(s.ctx)
		b.mu.Unlock()
	}
	b.refs++
	return b, nil
}

// isOther says whether an object has another generation than the pieces. One that
// has the same, as after a rename, is read from now on.
func (b *Blocks) isOther(r index.Remote) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone != nil || b.adopted || b.obj.Gen != r.Gen || b.size != r.Size {
		return true
	}
	b.obj = r
	return false
}

func newBlocks(s *Syncer, ino index.Ino, r index.Remote) (*Blocks, error) {
	w, err := s.cache.Temp()
	if err != nil {
		return nil, err
	}
	reader, err := os.Open(w.Name())
	if err == nil {
		err = w.Truncate(r.Size)
	}
	if err != nil {
		w.Close()
		os.Remove(w.Name())
		return nil, fmt.Errorf("cannot make room for %q: %w", r.Key, err)
	}
	grains := int((r.Size + grain - 1) / grain)
	return &Blocks{s: s, ino: ino, size: r.Size, obj: r, w: w, r: reader, have: make([]uint64, (grains+63)/64), left: grains}, nil
}

// Close ends one use. When it was the last, requests under way are ended; the
// pieces are kept for a while.
func (b *Blocks) Close() {
	t := &b.s.blocks
	t.mu.Lock()
	defer t.mu.Unlock()
	if b.refs--; b.refs > 0 {
		return
	}
	b.mu.Lock()
	b.cancel()
	left, gone := b.left, b.gone
	b.mu.Unlock()
	if b.idle = time.Now(); left == 0 || gone != nil || t.all[b.ino] != b {
		t.dropLocked(b)
		return
	}
	t.trimLocked(idleParts)
}

// trimLocked forgets the pieces of those read longest ago until so many are left
// that nobody has open.
func (t *blockTable) trimLocked(most int) {
	for {
		var oldest *Blocks
		idle := 0
		for _, b := range t.all {
			if b.refs > 0 {
				continue
			}
			if idle++; oldest == nil || b.idle.Before(oldest.idle) {
				oldest = b
			}
		}
		if idle <= most {
			return
		}
		t.dropLocked(oldest)
	}
}

func (t *blockTable) dropLocked(b *Blocks) {
	if b.closed {
		return
	}
	b.closed = true
	if t.all[b.ino] == b {
		delete(t.all, b.ino)
	}
	b.r.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left > 0 { // else it was adopted, or removed by who tried
		b.gone = os.ErrClosed
		b.w.Close()
		os.Remove(b.w.Name())
	}
}

// DropIdle forgets all pieces that nobody reads now, to free their disk.
func (s *Syncer) DropIdle() {
	s.blocks.mu.Lock()
	defer s.blocks.mu.Unlock()
	s.blocks.trimLocked(0)
}

// BlockBytes returns the bytes of disk that pieces take.
func (s *Syncer) BlockBytes() (n int64) {
	s.blocks.mu.Lock()
	defer s.blocks.mu.Unlock()
	for _, b := range s.blocks.all {
		b.mu.Lock()
		if b.left > 0 {
			n += b.obj.Size - int64(b.left)*grain
		}
		b.mu.Unlock()
	}
	return max(n, 0)
}

// closeAll waits for the requests, whose context is over, and forgets all.
func (t *blockTable) closeAll() {
	t.running.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.all {
		t.dropLocked(b)
	}
}

// adopt makes what is whole now the content file of the inode, unless that has
// got other content meanwhile.
func (b *Blocks) adopt() error {
	s, kept := b.s, false
	err := s.db.Update(func(batch *index.Batch) error {
		n, err := s.db.Inode(b.ino)
		if err != nil || !n.Remote || gen(&n) != b.obj.Gen {
			return err
		}
		if err := os.Chtimes(b.w.Name(), time.Time{}, time.Unix(0, n.Mtime)); err != nil {
			return err
		}
		kept = true
		if err := s.cache.Adopt(b.w, b.ino); err != nil {
			return err
		}
		n.Remote = false
		batch.MarkUnsynced(b.ino, index.Unsynced{}) // a power cut may leave anything in its place
		batch.PutInode(n)
		return nil
	})
	if !kept {
		b.w.Close()
		os.Remove(b.w.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed; its readers have what they need
	}
	return err
}

// fetchLarge does one try of Fetch piece by piece, going on with what is here.
func (s *Syncer) fetchLarge(ctx context.Context, n *index.Inode, r index.Remote) error {
	if n.Bare {
		return errors.Join(s.describe(ctx, n, r), errChanged)
	}
	b, err := s.blocks.open(s, n.Ino, r)
	if err != nil {
		return err
	}
	defer b.Close()
	b.mu.Lock()
	b.paid = true
	b.mu.Unlock()
	if err := b.fill(ctx); !errors.Is(err, object.ErrPrecondition) {
		return err
	}
	return object.ErrPrecondition
}

// fill returns when all of the object is here.
func (b *Blocks) fill(ctx context.Context) error {
	for at := int64(0); at < b.size; at += spanBytes {
		b.ahead(at, min(at+pieceFlight*spanBytes, b.size))
		if err := b.need(ctx, at, min(at+spanBytes, b.size)); err != nil {
			return err
		}
	}
	for {
		changed := b.changed.wait()
		b.mu.Lock()
		done, err := b.adopted, cmp.Or(b.adoptErr, b.gone)
		b.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hold says whether an object must stay for now, since somebody reads the only
// place of what it holds piece by piece: a removed or replaced file keeps its
// content for those who have it open. What is missing is fetched meanwhile.
func (s *Syncer) hold(r index.Remote) (bool, error) {
	s.blocks.mu.Lock()
	defer s.blocks.mu.Unlock()
	b := s.blocks.all[r.Ino]
	if b == nil || b.refs == 0 {
		return false, nil
	}
	b.mu.Lock()
	held := b.left > 0 && b.gone == nil && b.obj.Key == r.Key && b.obj.Gen == r.Gen
	obj, ctx, begun := b.obj, b.ctx, b.filling
	b.filling = b.filling || held
	b.mu.Unlock()
	if !held {
		return false, nil
	}
	if _, lost, err := b.elsewhere(obj); err != nil || !lost {
		return false, err
	}
	if !begun {
		s.blocks.running.Go(func() {
			if err := b.fill(ctx); err != nil && ctx.Err() == nil {
				s.failed(err)
			}
			b.mu.Lock()
			b.filling = false
			b.mu.Unlock()
		})
	}
	return true, nil
}
