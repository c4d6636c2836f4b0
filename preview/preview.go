// Package preview follows what happens to files and machines and shows it: the
// feed of changes behind the event streams, the tool calls that overlap each
// change, and line diffs.
//
// The Feed reads one source of changes (mountd's), adds the states of machines
// and the tool calls that were running, and keeps the latest events in a ring.
// A Subscription is only a position in that ring, so publishing never waits
// for a reader. An event's id is EPOCH.SEQ: the epoch is random and changes
// when the feed starts or loses track of its source, the sequence is dense
// within it. A reader whose position is in another epoch, or has left the
// ring, gets a reset: it must list again what it shows. Events are hints; the
// truth is in listings and reads.
package preview

import (
	"encoding/json"
	"errors"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"berth"
)

// ErrReset is returned by a Stream that fell behind its source, or whose source
// does not know the position it was opened at.
var ErrReset = errors.New("the position in the changes is not known any more")

// A Change is a change of a file and what is known about its cause.
type Change struct {
	berth.Change
	// Calls are the ids of all tool calls that were running when it was made, in
	// machines that see its tree. It is not known which of them made it.
	Calls []berth.ID
	// Chat is the one chat all those calls belong to, or empty. It is the chat of
	// the member User, or of an API key where that is empty.
	Chat, User berth.ID
}

// MarshalJSON adds path_base64 and from_base64 for paths that are not UTF-8,
// which JSON cannot hold.
func (c Change) MarshalJSON() ([]byte, error) {
	type wire struct {
		berth.Change
		PathBytes []byte     `json:"path_base64,omitempty"`
		FromBytes []byte     `json:"from_base64,omitempty"`
		Calls     []berth.ID `json:"calls,omitempty"`
		Chat      berth.ID   `json:"chat,omitempty"`
	}
	w := wire{Change: c.Change, Calls: c.Calls, Chat: c.Chat}
	if !utf8.ValidString(c.Path) {
		w.PathBytes = []byte(c.Path)
	}
	if !utf8.ValidString(c.From) {
		w.FromBytes = []byte(c.From)
	}
	return json.Marshal(w)
}

// A Machine is a state that a chat's machine came into.
type Machine struct {
	View    berth.View `json:"-"` // whose machine it is
	Chat    berth.ID   `json:"chat"`
	Machine berth.ID   `json:"machine"`
	State   string     `json:"state"`
	Reason  string     `json:"reason,omitempty"`
	Since   time.Time  `json:"since"`
}

// The names of events.
const (
	EventFiles   = "fs"
	EventMachine = "machine"
	EventReset   = "reset"
)

// An Event is what a subscription delivers. Exactly one of Changes, Machine and
// Reset is set.
type Event struct {
	ID      string   // what to subscribe from to get what follows this event
	Changes []Change // at least one
	Machine *Machine
	Reset   string // why: "restart", "overflow" or "gap"
}

// Name returns the event's name in a stream.
func (e Event) Name() string {
	switch {
	case e.Reset != "":
		return EventReset
	case e.Machine != nil:
		return EventMachine
	}
	return EventFiles
}

// Data returns the event's JSON.
func (e Event) Data() ([]byte, error) {
	switch {
	case e.Reset != "":
		epoch, _, _ := strings.Cut(e.ID, ".")
		return json.Marshal(map[string]string{"reason": e.Reset, "epoch": epoch})
	case e.Machine != nil:
		return json.Marshal(e.Machine)
	}
	return json.Marshal(map[string][]Change{"changes": e.Changes})
}

// A Filter says what a reader may see. A nil function lets nothing through. The
// functions are called without locks and may take their time.
type Filter struct {
	Change  func(Change) bool
	Machine func(Machine) bool
	// Chat says whether the reader may know the chat of a change that it sees; of
	// others Change does not know it either.
	Chat func(Change) bool
}

// apply returns the part of the event that passes, and whether any does.
func (f Filter) apply(e Event) (Event, bool) {
	if e.Machine != nil {
		return e, f.Machine != nil && f.Machine(*e.Machine)
	}
	if f.Change == nil {
		return e, false
	}
	passed := make([]Change, 0, len(e.Changes))
	for _, c := range e.Changes {
		if c.Chat != "" && (f.Chat == nil || !f.Chat(c)) {
			c.Chat, c.User = "", ""
		}
		if f.Change(c) {
			passed = append(passed, c)
		}
	}
	e.Changes = passed
	return e, len(passed) > 0
}

// replacement turns the renaming of a put's temporary file into a write, and
// reports whether the change is to be shown at all.
func replacement(c berth.Change) (berth.Change, bool) {
	if strings.HasPrefix(path.Base(c.Path), berth.PutPrefix) {
		return c, false
	}
	if c.Op == berth.OpRename && strings.HasPrefix(path.Base(c.From), berth.PutPrefix) {
		c.Op, c.From = berth.OpWrite, ""
	}
	return c, true
}
