package fusefs

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"berth/fusefs/index"
)

// How the kernel is told.
const (
	stuckAfter = 50 * time.Millisecond // a notice that takes longer does not hold up the others
	maxStuck   = 64                    // as many can take longer at a time
)

// A notice is one thing that the kernel is to forget.
type notice struct {
	ino  index.Ino // whose attributes; with a name the directory
	name string    // an entry, if not empty
	data bool      // content too
}

// A telling is a notice in the queue.
type telling struct {
	notice
	told chan struct{} // closed when the kernel was told; nil if nobody waits for it
}

// A notifier tells the kernel what it must not believe any more. Telling can
// wait for requests that the kernel has under way, and they for the store. So it
// happens on goroutines that hold no lock, and who has something to tell never
// waits: one goroutine tells, and another takes its turn when the kernel keeps
// it, so that a directory in which somebody waits delays no other.
type notifier struct {
	changes   atomic.Uint64 // announced so far; see epoch
	unmounted chan struct{}
	tell      func(notice) // set by start
	tellers   sync.WaitGroup

	mu     sync.Mutex // protects the fields below
	queue  []*telling
	queued map[notice]*telling // of the queue
	turn   int                 // the number of the goroutine that tells
	stuck  int                 // how many lost their turn and are not through
	held   bool                // the one that tells would have lost it but for maxStuck
	closed bool
	gone   bool // unmounted is closed
	more   *sync.Cond
}

func newNotifier() *notifier {
	n := &notifier{unmounted: make(chan struct{}), queued: make(map[notice]*telling)}
	n.more = sync.NewCond(&n.mu)
	return n
}

// start begins to tell the kernel.
func (n *notifier) start(server *fuse.Server) {
	// The answers do not matter: the kernel may not know the inode, and a mount
	// that is gone needs no notice.
	n.tell = func(it notice) {
		switch {
		case it.name != "":
			server.EntryNotify(uint64(it.ino), it.name)
		case it.data:
			server.InodeNotify(uint64(it.ino), 0, 0)
		default:
			server.InodeNotify(uint64(it.ino), -1, 0)
		}
	}
	n.tellers.Add(1)
	go n.run(n.turn)
}

// run tells what is queued as long as it has the turn.
func (n *notifier) run(turn int) {
	defer n.tellers.Done()
	watchdog := time.AfterFunc(time.Hour, func() { n.relieve(turn) })
	defer watchdog.Stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for !n.closed && n.turn == turn {
		if len(n.queue) == 0 {
			n.more.Wait()
			continue
		}
		it := n.queue[0]
		n.queue = n.queue[1:]
		delete(n.queued, it.notice)
		n.mu.Unlock()
		watchdog.Reset(stuckAfter)
		n.tell(it.notice)
		watchdog.Stop()
		n.mu.Lock()
		it.end()
		n.held = n.held && n.turn != turn
	}
	if n.turn != turn {
		n.stuck--
		if n.held && !n.closed {
			n.passLocked()
		}
	}
}

// relieve gives the turn of a goroutine that the kernel keeps to a new one.
func (n *notifier) relieve(turn int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed || n.turn != turn:
	case n.stuck == maxStuck:
		n.held = true // until one of them is through
	default:
		n.passLocked()
	}
}

// passLocked gives the turn to a new goroutine.
func (n *notifier) passLocked() {
	n.held = false
	n.stuck++
	n.turn++
	n.tellers.Add(1)
	go n.run(n.turn)
}

func (t *telling) end() {
	if t.told != nil {
		close(t.told)
	}
}

// add queues a notice unless it is queued already. The result is closed when the
// kernel was told, or will not be any more; it is nil if nobody waits for that.
func (n *notifier) add(it notice, wait bool) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.queued[it]
	if t == nil {
		t = &telling{notice: it}
		if !n.closed {
			n.queued[it] = t
			n.queue = append(n.queue, t)
			n.more.Signal()
		}
	}
	if wait && t.told == nil {
		t.told = make(chan struct{})
		if n.closed {
			close(t.told)
		}
	}
	return t.told
}

// epoch grows with each change that is announced: a request that read before and
// answers after must not have its answer kept.
func (n *notifier) epoch() uint64 { return n.changes.Load() }

// entry has the kernel forget a name in a directory.
func (n *notifier) entry(dir index.Ino, name string) {
	n.changes.Add(1)
	n.add(notice{ino: dir, name: name}, false)
}

// entryTold is entry for who needs to know that it has.
func (n *notifier) entryTold(dir index.Ino, name string) <-chan struct{} {
	n.changes.Add(1)
	return n.add(notice{ino: dir, name: name}, true)
}

// inode has the kernel forget attributes and content.
func (n *notifier) inode(ino index.Ino) {
	n.changes.Add(1)
	n.add(notice{ino: ino, data: true}, false)
}

// attrs has the kernel forget attributes.
func (n *notifier) attrs(ino index.Ino) {
	n.add(notice{ino: ino}, false)
}

// setUnmounted notes that no request comes any more.
func (n *notifier) setUnmounted() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.gone {
		n.gone = true
		close(n.unmounted)
	}
}

// close ends the goroutines and waits for them. The mount must be gone: the
// kernel then keeps none.
func (n *notifier) close() {
	n.mu.Lock()
	n.closed = true
	for _, t := range n.queue {
		t.end()
	}
	n.queue = nil
	clear(n.queued)
	n.more.Broadcast()
	n.mu.Unlock()
	n.tellers.Wait()
}

// EntryChanged and the methods below are what sync calls (sync.Hooks).
func (f *FS) EntryChanged(parent index.Ino, name string) {
	if _, ok := f.synth.child(parent, name); ok || f.synth.isSynth(parent) {
		return // synthetic names are never notified: mounts may lie on them
	}
	f.notify.entry(parent, name)
}

// InodeChanged tells that attributes or content were taken from the bucket.
func (f *FS) InodeChanged(ino index.Ino) { f.notify.inode(ino) }
