package preview

import (
	"slices"
	"time"

	"berth"
)

// clockStep is how far the time of a change may lie beside its call's: the kernel
// dates files in steps of its tick, at most this long.
const clockStep = 10 * time.Millisecond

// A Call is one tool call in a machine.
type Call struct {
	ID             berth.ID
	View           berth.View // of the machine it ran in
	Checkpoint     uint64     // of the view's trees, taken before it; 0 is none
	Started, Ended time.Time  // Ended is zero while it runs
}

// Calls remembers the latest tool calls. It can be used from many goroutines.
type Calls interface {
	// CallByID returns a call, if it is remembered.
	CallByID(id berth.ID) (Call, bool)
	// CallsOn returns the calls that ran at any time between from and to in
	// machines that see the tree, oldest first.
	CallsOn(tree berth.Tree, from, to time.Time) []Call
}

// Baseline returns the call that a diff of a tree's file is made against: the
// one with the id, or, if that is empty, the latest in a machine that sees the
// tree. A call without checkpoint is none.
func (f *Feed) Baseline(id berth.ID, tree berth.Tree) (Call, bool) {
	if f.calls == nil {
		return Call{}, false
	}
	if id != "" {
		c, ok := f.calls.CallByID(id)
		return c, ok && c.Checkpoint != 0 && c.sees(tree)
	}
	for _, c := range slices.Backward(f.calls.CallsOn(tree, time.Time{}, f.now())) {
		if c.Checkpoint != 0 {
			return c, true
		}
	}
	return Call{}, false
}

func (c Call) sees(tree berth.Tree) bool {
	return slices.ContainsFunc(c.View.Places(), func(p berth.Place) bool { return p.Tree == tree })
}

// overlaps finds the calls that overlap the changes of one batch. It asks for
// the calls of each tree once.
type overlaps struct {
	calls    Calls
	from, to time.Time
	byTree   map[string][]Call
}

func newOverlaps(calls Calls, batch []berth.Change) *overlaps {
	o := &overlaps{calls: calls, byTree: make(map[string][]Call)}
	for i, c := range batch {
		if i == 0 || c.Time.Before(o.from) {
			o.from = c.Time
		}
		if i == 0 || c.Time.After(o.to) {
			o.to = c.Time
		}
	}
	return o
}

// at returns the calls that ran at a time in machines that see a tree, and the
// view of all of them if they ran in one machine.
func (o *overlaps) at(tree berth.Tree, when time.Time) (ids []berth.ID, view berth.View) {
	if o.calls == nil {
		return nil, view
	}
	name := tree.String()
	calls, ok := o.byTree[name]
	if !ok {
		calls = o.calls.CallsOn(tree, o.from.Add(-clockStep), o.to.Add(clockStep))
		o.byTree[name] = calls
	}
	one := true
	for _, c := range calls {
		if when.Before(c.Started.Add(-clockStep)) || (!c.Ended.IsZero() && when.After(c.Ended.Add(clockStep))) {
			continue
		}
		one = one && (len(ids) == 0 || c.View.Machine == view.Machine)
		view = c.View
		ids = append(ids, c.ID)
	}
	if !one {
		view = berth.View{}
	}
	return ids, view
}
