package fusefs

import (
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"

	"berth/fusefs/index"
)

// A notice is one thing that the kernel is to forget.
type notice struct {
	ino  index.Ino // whose attributes; with a name the directory
	name string    // an entry, if not empty
	data bool      // content too
}

// A notifier tells the kernel what it must not believe any more. Telling can
// wait for requests that the kernel has under way, so it happens on a goroutine
// of its own that holds no lock; who has something to tell never waits.
type notifier struct {
	changes   atomic.Uint64 // announced so far; see epoch
	unmounted chan struct{}

	mu     sync.Mutex // protects the fields below
	queue  []notice
	queued map[notice]bool
	closed bool
	gone   bool // unmounted is closed
	more   *sync.Cond
	idle   *sync.Cond
	busy   bool
	ended  chan struct{} // the goroutine ended; nil before start
}

func newNotifier() *notifier {
	n := &notifier{unmounted: make(chan struct{}), queued: make(map[notice]bool)}
	n.more, n.idle = sync.NewCond(&n.mu), sync.NewCond(&n.mu)
	return n
}

// start begins to tell the kernel.
func (n *notifier) start(server *fuse.Server) {
	n.ended = make(chan struct{})
	go func() {
		defer close(n.ended)
		n.run(server)
	}()
}

func (n *notifier) run(server *fuse.Server) {
	for {
		n.mu.Lock()
		n.busy = false
		for len(n.queue) == 0 && !n.closed {
			n.idle.Broadcast()
			n.more.Wait()
		}
		if n.closed {
			n.idle.Broadcast()
			n.mu.Unlock()
			return
		}
		batch := n.queue
		n.queue, n.busy = nil, true
		clear(n.queued)
		n.mu.Unlock()
		for _, it := range batch {
			// The answers do not matter: the kernel may not know the inode, and a mount
			// that is gone needs no notice.
			switch {
			case it.name != "":
				server.EntryNotify(uint64(it.ino), it.name)
			case it.data:
				server.InodeNotify(uint64(it.ino), 0, 0)
			default:
				server.InodeNotify(uint64(it.ino), -1, 0)
			}
		}
	}
}

func (n *notifier) add(it notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.queued[it] {
		return
	}
	n.queued[it] = true
	n.queue = append(n.queue, it)
	n.more.Signal()
}

// epoch grows with each change that is announced: a request that read before and
// answers after must not have its answer kept.
func (n *notifier) epoch() uint64 { return n.changes.Load() }

// entry has the kernel forget a name in a directory.
func (n *notifier) entry(dir index.Ino, name string) {
	n.changes.Add(1)
	n.add(notice{ino: dir, name: name})
}

// inode has the kernel forget attributes and content.
func (n *notifier) inode(ino index.Ino) {
	n.changes.Add(1)
	n.add(notice{ino: ino, data: true})
}

// attrs has the kernel forget attributes.
func (n *notifier) attrs(ino index.Ino) {
	n.add(notice{ino: ino})
}

// flush waits until all that was announced is told.
func (n *notifier) flush() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for !n.closed && (len(n.queue) > 0 || n.busy) {
		n.idle.Wait()
	}
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

// close ends the goroutine and waits for it.
func (n *notifier) close() {
	n.mu.Lock()
	n.closed = true
	n.more.Broadcast()
	ended := n.ended
	n.mu.Unlock()
	if ended != nil {
		<-ended
	}
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
