package sandbox

import (
	"slices"
	"sync"
	"time"

	"berth"
)

// A CallInfo tells of one tool call.
type CallInfo struct {
	ID         berth.ID   `json:"id"`
	Tool       string     `json:"tool"`
	Expert     berth.ID   `json:"expert"`
	View       berth.View `json:"view"`
	Checkpoint uint64     `json:"checkpoint"` // of the view's trees, set before the call; 0 is none
	Started    time.Time  `json:"started"`
	Ended      time.Time  `json:"ended"` // zero while it runs
}

// maxCallLog is how many calls are remembered.
const maxCallLog = 4096

// callLog remembers the last calls.
type callLog struct {
	mu    sync.Mutex // protects what follows
	calls []*CallInfo
	byID  map[berth.ID]*CallInfo
}

func newCallLog() *callLog { return &callLog{byID: map[berth.ID]*CallInfo{}} }

// begin remembers a call; the function that it returns notes its end.
func (l *callLog) begin(c CallInfo) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.calls) == maxCallLog {
		if old := l.calls[0]; l.byID[old.ID] == old {
			delete(l.byID, old.ID)
		}
		l.calls = slices.Delete(l.calls, 0, 1)
	}
	l.calls = append(l.calls, &c)
	l.byID[c.ID] = &c
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.Ended = time.Now()
	}
}

// CallByID returns one of the last calls.
func (m *Manager) CallByID(id berth.ID) (CallInfo, bool) {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	if c := m.calls.byID[id]; c != nil {
		return *c, true
	}
	return CallInfo{}, false
}

// CallsOn returns the calls that ran between from and to in machines which see
// the tree, oldest first.
func (m *Manager) CallsOn(tree berth.Tree, from, to time.Time) []CallInfo {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	var out []CallInfo
	for _, c := range m.calls.calls {
		if c.Started.After(to) || !c.Ended.IsZero() && c.Ended.Before(from) {
			continue
		}
		if slices.Contains(viewTrees(c.View), tree) {
			out = append(out, *c)
		}
	}
	return out
}
