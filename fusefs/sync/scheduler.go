package sync

import (
	"container/heap"
	"math"
	"slices"
	"sync"
	"time"

	"berth/fusefs/index"
)

// Bounds of what the scheduler keeps in memory. The rest of the queue waits in
// the index until it is scanned.
const (
	maxPending  = 1 << 14 // inodes of all trees
	maxPerTree  = 1 << 12 // inodes of one tree, so that a big one leaves room
	lowPending  = 1 << 10 // scan for more below this
	scanChunk   = 1 << 12
	rescanEvery = 30 * time.Second // finds what fell out while it waited to be tried again
)

// A scheduler gives out the inodes of the upload queue, each at most once at a
// time, the trees taking turns.
type scheduler struct {
	db   *index.DB
	now  func() time.Time
	wake chan struct{} // there may be something to give out

	hurried broadcast // somebody began to wait in Flush

	mu      sync.Mutex // protects the fields below
	trees   map[index.Ino]*pendingTree
	turns   []*pendingTree // the trees in the order of their turns
	items   map[index.Ino]*item
	running map[index.Ino]*item
	urgent  int       // callers of Flush: nothing waits for a burst to end
	burst   burst     // of changes here
	napping time.Time // until then nobody looks for something to give out, unless woken
	more    bool      // the index may have queued inodes that are not in items
	cursor  index.Ino // where the scan goes on
	missed  bool      // something was left out since the scan began anew
	scanAt  time.Time // when to scan although nothing was left out
	paused  time.Time // until then nothing is given out: the store is away
}

// An item is one inode that waits or runs.
type item struct {
	ino   index.Ino
	tree  *pendingTree
	due   time.Time // not before
	hard  time.Time // not before, even when urgent
	tries int       // how often it failed in a row
	again bool      // kicked while it ran
	stop  func()    // ends the turn under way; nil while it waits
	at    int       // in the heap
}

type pendingTree struct {
	root  index.Ino
	items itemHeap
}

func newScheduler(db *index.DB, now func() time.Time) *scheduler {
	return &scheduler{db: db, now: now, wake: make(chan struct{}, 1), trees: make(map[index.Ino]*pendingTree),
		items: make(map[index.Ino]*item), running: make(map[index.Ino]*item)}
}

// rescan makes the scheduler look through the whole queue of the index.
func (s *scheduler) rescan() {
	s.mu.Lock()
	s.more, s.cursor, s.missed = true, 0, false
	s.mu.Unlock()
	wake(s.wake)
}

// kick puts an inode in line, to be given out after a delay.
func (s *scheduler) kick(ino index.Ino, delay time.Duration) {
	s.mu.Lock()
	now := s.now()
	if r := s.running[ino]; r != nil {
		r.again = true
	} else if it := s.items[ino]; it != nil {
		it.tries, it.hard = 0, now // it changed: what failed before may work
		if due := now.Add(delay); due.Before(it.due) {
			s.setDueLocked(it, due)
		}
	} else {
		s.addLocked(ino, now, now.Add(delay))
	}
	early := now.Add(max(delay, s.burst.left(now))).Before(s.napping)
	s.mu.Unlock()
	if early {
		wake(s.wake)
	}
}

// addLocked puts an inode in line unless there is no room.
func (s *scheduler) addLocked(ino index.Ino, hard, due time.Time) {
	if s.items[ino] != nil || s.running[ino] != nil {
		return
	}
	var root index.Ino
	if n, err := s.db.Inode(ino); err == nil {
		root = n.Tree
	}
	t := s.trees[root]
	if len(s.items) >= maxPending || t != nil && len(t.items) >= maxPerTree {
		s.more, s.missed = true, true
		return
	}
	if t == nil {
		t = &pendingTree{root: root}
		s.trees[root] = t
		s.turns = append(s.turns, t)
	}
	if s.urgent > 0 {
		due = hard
	}
	it := &item{ino: ino, tree: t, due: due, hard: hard}
	s.items[ino] = it
	heap.Push(&t.items, it)
}

func (s *scheduler) setDueLocked(it *item, due time.Time) {
	if s.urgent > 0 {
		due = it.hard
	}
	it.due = due
	heap.Fix(&it.tree.items, it.at)
}

// take returns the inode whose turn it is, or how long to wait for one.
func (s *scheduler) take() (it *item, wait time.Duration) {
	s.refill()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	defer func() { s.napping = now.Add(wait) }()
	if d := s.paused.Sub(now); d > 0 {
		return nil, d
	}
	if d := s.burst.left(now); d > 0 && len(s.running) >= s.burst.uploads(now) && s.urgent == 0 {
		return nil, d
	}
	wait = s.scanAt.Sub(now)
	for i, t := range s.turns {
		d := t.items[0].due.Sub(now)
		if d > 0 {
			wait = min(wait, d)
			continue
		}
		it := heap.Pop(&t.items).(*item)
		delete(s.items, it.ino)
		s.running[it.ino] = it
		s.turns = append(s.turns[:i:i], s.turns[i+1:]...)
		if len(t.items) > 0 {
			s.turns = append(s.turns, t)
		} else {
			delete(s.trees, t.root)
		}
		return it, 0
	}
	return nil, max(wait, time.Millisecond)
}

// begin notes how the turn of an inode can be ended.
func (s *scheduler) begin(it *item, stop func()) {
	s.mu.Lock()
	it.stop = stop
	s.mu.Unlock()
}

// drop takes an inode that exists no more out of line and ends its turn, if one
// is under way.
func (s *scheduler) drop(ino index.Ino) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.burst.touch(s.now())
	if it := s.items[ino]; it != nil {
		heap.Remove(&it.tree.items, it.at)
		delete(s.items, ino)
		if len(it.tree.items) == 0 {
			delete(s.trees, it.tree.root)
			s.turns = slices.DeleteFunc(s.turns, func(t *pendingTree) bool { return t == it.tree })
		}
	}
	if r := s.running[ino]; r != nil && r.stop != nil {
		r.stop() // a turn without a stop has yet to look at the index
	}
}

// done ends the turn of an inode; retry < 0 means that nothing is left to do
// unless it was kicked meanwhile.
func (s *scheduler) done(it *item, retry time.Duration) {
	s.mu.Lock()
	delete(s.running, it.ino)
	now := s.now()
	switch {
	case it.again:
		s.addLocked(it.ino, now, now.Add(debounce))
	case retry >= 0:
		s.addLocked(it.ino, now.Add(retry), now.Add(retry))
		if again := s.items[it.ino]; again != nil {
			again.tries = it.tries
		}
	}
	s.mu.Unlock()
	wake(s.wake)
}

// refill reads on in the queue of the index when few inodes are in line.
func (s *scheduler) refill() {
	for {
		s.mu.Lock()
		now := s.now()
		if now.After(s.scanAt) {
			s.scanAt = now.Add(rescanEvery)
			s.more = true
		}
		if !s.more || len(s.items) >= lowPending {
			s.mu.Unlock()
			return
		}
		cursor := s.cursor
		s.mu.Unlock()

		inos, at, err := s.db.QueuedAfter(cursor, scanChunk)
		s.mu.Lock()
		if err != nil || len(inos) == 0 && cursor == 0 {
			s.more = false
			s.mu.Unlock()
			return
		}
		for i, ino := range inos {
			s.cursor = ino
			s.addLocked(ino, now, time.Unix(0, at[i]).Add(debounce))
		}
		full := len(s.items) >= lowPending
		if len(inos) < scanChunk { // the end: start again only if something did not fit
			s.cursor, s.more, s.missed = 0, s.missed, false
			full = true
		}
		s.mu.Unlock()
		if full {
			return
		}
	}
}

// pause gives nothing out for a while, longer each time, until resume.
func (s *scheduler) pause(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = s.now().Add(d)
}

// resume ends a pause.
func (s *scheduler) resume() {
	s.mu.Lock()
	s.paused = time.Time{}
	s.mu.Unlock()
	wake(s.wake)
}

// hurry makes nothing wait for the end of a burst until the returned function is
// called.
func (s *scheduler) hurry() (calm func()) {
	s.mu.Lock()
	s.urgent++
	for _, it := range s.items {
		s.setDueLocked(it, it.hard)
	}
	s.mu.Unlock()
	s.hurried.notify()
	wake(s.wake)
	return func() {
		s.mu.Lock()
		s.urgent--
		s.mu.Unlock()
	}
}

// isHurried says whether somebody waits in Flush.
func (s *scheduler) isHurried() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urgent > 0
}

// busy returns how many inodes are being worked on.
func (s *scheduler) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// backoff is how long to wait after so many failures in a row.
func backoff(tries int, first, most time.Duration) time.Duration {
	d := float64(first) * math.Pow(2, float64(min(tries, 30)))
	return min(time.Duration(min(d, float64(math.MaxInt64/2))), most)
}

// An itemHeap has the inode that is due first on top.
type itemHeap []*item

func (h itemHeap) Len() int           { return len(h) }
func (h itemHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h itemHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}
func (h *itemHeap) Push(x any) {
	it := x.(*item)
	it.at = len(*h)
	*h = append(*h, it)
}
func (h *itemHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	*h = old[:len(old)-1]
	return it
}
