package preview

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth"
)

// A Stream delivers the changes of one source from a position on. It is used by
// one goroutine.
type Stream interface {
	// Epoch names the run of sequence numbers that the changes belong to.
	Epoch() string
	// Next returns the next changes, at least one, as soon as there are any. It
	// returns ErrReset when some were lost, and any other error when the source
	// is away. After an error the stream is only good for Close.
	Next(ctx context.Context) ([]berth.Change, error)
	Close() error
}

// Options are what a Feed needs.
type Options struct {
	// Open starts a stream after the given sequence number of the given epoch. An
	// empty epoch means from now on.
	Open   func(ctx context.Context, epoch string, since uint64) (Stream, error)
	Calls  Calls // nil: nothing runs tools
	Logger *slog.Logger
	Now    func() time.Time // nil is time.Now

	RingEvents int // 0 is 4096
	RingBytes  int // 0 is 4 MiB, by estimate
}

// A Feed keeps the latest events and hands them to subscriptions. See the
// package comment. It can be used from many goroutines.
type Feed struct {
	open      func(ctx context.Context, epoch string, since uint64) (Stream, error)
	log       *slog.Logger
	now       func() time.Time
	maxEvents int
	maxBytes  int
	calls     Calls // nil: there are none

	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	epoch string
	first uint64  // sequence number of ring[0]; numbers begin at 1
	ring  []entry // the latest events, oldest first
	bytes int
	wake  chan struct{} // closed and replaced when anything is published
}

type entry struct {
	event Event
	size  int
}

// NewFeed starts a feed. It follows its source until Close.
func NewFeed(o Options) *Feed {
	f := &Feed{
		open: o.Open, log: o.Logger, now: o.Now, maxEvents: o.RingEvents, maxBytes: o.RingBytes, calls: o.Calls,
		done: make(chan struct{}), epoch: newEpoch(), first: 1, wake: make(chan struct{}),
	}
	if f.now == nil {
		f.now = time.Now
	}
	if f.maxEvents == 0 {
		f.maxEvents = 4096
	}
	if f.maxBytes == 0 {
		f.maxBytes = 4 << 20
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	go func() {
		defer close(f.done)
		f.follow(ctx)
	}()
	return f
}

// Close ends the feed's reading of its source and waits for it. Subscriptions
// go on to deliver what was published.
func (f *Feed) Close() {
	f.stop()
	<-f.done
}

func newEpoch() string { return strings.ToLower(rand.Text()[:12]) }

// follow reads the source until ctx ends, reopening it after errors.
func (f *Feed) follow(ctx context.Context) {
	const fastest, slowest = 100 * time.Millisecond, 2 * time.Second // between attempts
	var epoch string
	var since uint64
	wait := fastest
	for ctx.Err() == nil {
		read, err := f.readSource(ctx, &epoch, &since)
		if ctx.Err() != nil {
			return
		}
		if read {
			wait = fastest
		}
		if errors.Is(err, ErrReset) {
			epoch, since = "", 0
			f.Reset(map[bool]string{true: "overflow", false: "restart"}[read])
			continue
		}
		f.log.Warn("Cannot read the changes; trying again", "err", err, "wait", wait)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, slowest)
	}
}

// readSource opens the source at the position and publishes what it delivers,
// moving the position, until an error. It reports whether the source was opened.
func (f *Feed) readSource(ctx context.Context, epoch *string, since *uint64) (bool, error) {
	s, err := f.open(ctx, *epoch, *since)
	if err != nil {
		return false, err
	}
	defer s.Close()
	if *epoch != "" && s.Epoch() != *epoch {
		*since = 0
		f.Reset("restart")
	}
	*epoch = s.Epoch()
	for {
		changes, err := s.Next(ctx)
		if err != nil {
			return true, err
		}
		for len(changes) > 0 {
			n := min(len(changes), maxBatch)
			f.publishChanges(changes[:n])
			*since = changes[n-1].Seq
			changes = changes[n:]
		}
	}
}

// maxBatch is the largest number of changes in one event.
const maxBatch = 500

func (f *Feed) publishChanges(changes []berth.Change) {
	batch := make([]Change, 0, len(changes))
	size := 0
	during := newOverlaps(f.calls, changes)
	for _, c := range changes {
		tree, err := berth.ParseTree(c.Tree)
		c, shown := replacement(c)
		if err != nil || tree.Kind == berth.MachineHome || !shown {
			continue // a machine's home is nobody's business, and busy
		}
		calls, view := during.at(tree, c.Time)
		batch = append(batch, Change{Change: c, Calls: calls, Chat: view.Chat, User: view.User})
		size += 256 + len(c.Path) + len(c.From) + len(c.Tree)
	}
	if len(batch) > 0 {
		f.publish(Event{Changes: batch}, size)
	}
}

// PublishMachine tells subscriptions about a machine's state. It never waits.
func (f *Feed) PublishMachine(m Machine) {
	f.publish(Event{Machine: &m}, 512)
}

func (f *Feed) publish(e Event, size int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.ID = eventID(f.epoch, f.first+uint64(len(f.ring)))
	f.ring = append(f.ring, entry{e, size})
	f.bytes += size
	drop := 0
	for drop < len(f.ring)-1 && (len(f.ring)-drop > f.maxEvents || f.bytes > f.maxBytes) {
		f.bytes -= f.ring[drop].size
		f.ring[drop] = entry{} // let go of the event while append still keeps its place
		drop++
	}
	f.ring = f.ring[drop:]
	f.first += uint64(drop)
	f.wakeLocked()
}

// Reset begins a new epoch: events were lost, for the reason "overflow" or
// "restart". Every subscription will be told.
func (f *Feed) Reset(why string) {
	f.log.Info("The change feed was reset; readers will list again", "reason", why)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch, f.first, f.ring, f.bytes = newEpoch(), 1, nil, 0
	f.wakeLocked()
}

func (f *Feed) wakeLocked() {
	close(f.wake)
	f.wake = make(chan struct{})
}

// Cursor returns the present position: a subscription from there gets all that
// is published from now on.
func (f *Feed) Cursor() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return eventID(f.epoch, f.lastLocked())
}

func (f *Feed) lastLocked() uint64 { return f.first + uint64(len(f.ring)) - 1 }

func eventID(epoch string, seq uint64) string {
	return epoch + "." + strconv.FormatUint(seq, 10)
}

// ParseEventID splits an event's id. It does not know whether the feed has it.
func ParseEventID(id string) (epoch string, seq uint64, err error) {
	epoch, number, ok := strings.Cut(id, ".")
	if !ok || epoch == "" || len(epoch) > 64 {
		return "", 0, fmt.Errorf("cannot parse event id %.100q: it is not EPOCH.NUMBER", id)
	}
	seq, err = strconv.ParseUint(number, 10, 64)
	if err != nil || number != strconv.FormatUint(seq, 10) {
		return "", 0, fmt.Errorf("cannot parse event id %.100q: it is not EPOCH.NUMBER", id)
	}
	return epoch, seq, nil
}
