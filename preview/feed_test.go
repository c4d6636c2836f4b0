package preview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// memSource is a source of changes in memory: epochs, sequence numbers, and
// streams that go on from a position.
type memSource struct {
	mu      sync.Mutex
	epoch   string
	changes []berth.Change
	wake    chan struct{}
	broken  error // what streams and Open answer
	opened  int
}

func newMemSource() *memSource { return &memSource{epoch: "m1", wake: make(chan struct{})} }

// set changes the source under its lock and wakes the streams.
func (m *memSource) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.wake)
	m.wake = make(chan struct{})
}

func (m *memSource) add(changes ...berth.Change) {
	m.set(func() {
		for _, c := range changes {
			c.Seq = uint64(len(m.changes) + 1)
			m.changes = append(m.changes, c)
		}
	})
}

func (m *memSource) open(ctx context.Context, epoch string, since uint64) (Stream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened++
	if m.broken != nil {
		return nil, m.broken
	}
	if epoch != m.epoch {
		since = uint64(len(m.changes))
		if epoch != "" {
			since = 0
		}
	}
	return &memStream{m: m, epoch: m.epoch, at: since}, nil
}

type memStream struct {
	m     *memSource
	epoch string
	at    uint64
}

func (s *memStream) Epoch() string { return s.epoch }
func (s *memStream) Close() error  { return nil }
func (s *memStream) Next(ctx context.Context) ([]berth.Change, error) {
	for {
		s.m.mu.Lock()
		broken, wake := s.m.broken, s.m.wake
		if s.epoch != s.m.epoch {
			broken = errors.New("the source was restarted")
		}
		fresh := slices.Clone(s.m.changes[min(s.at, uint64(len(s.m.changes))):])
		s.m.mu.Unlock()
		if broken != nil {
			return nil, broken
		}
		if len(fresh) > 0 {
			s.at += uint64(len(fresh))
			return fresh, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-wake:
		}
	}
}

// memCalls is a fixed list of calls.
type memCalls []Call

func (m memCalls) CallByID(id berth.ID) (Call, bool) {
	i := slices.IndexFunc(m, func(c Call) bool { return c.ID == id })
	if i < 0 {
		return Call{}, false
	}
	return m[i], true
}

func (m memCalls) CallsOn(tree berth.Tree, from, to time.Time) []Call {
	return slices.DeleteFunc(slices.Clone(m), func(c Call) bool {
		return !c.sees(tree) || c.Started.After(to) || (!c.Ended.IsZero() && c.Ended.Before(from))
	})
}

var everything = Filter{
	Change:  func(Change) bool { return true },
	Machine: func(Machine) bool { return true },
	Chat:    func(Change) bool { return true },
}

func testFeed(t *testing.T, o Options) (*Feed, *memSource) {
	t.Helper()
	source := newMemSource()
	o.Open = source.open
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	o.Now = func() time.Time { return now }
	f := NewFeed(o)
	t.Cleanup(f.Close)
	// The feed must have opened its source, or what is added now is not news.
	within(t, func() bool {
		source.mu.Lock()
		defer source.mu.Unlock()
		return source.opened > 0
	})
	return f, source
}

func within(t *testing.T, f func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !f(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("not within 10 s")
		}
	}
}

func next(t *testing.T, s *Subscription) Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	e, err := s.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func change(tree, path string) berth.Change {
	return berth.Change{Time: now, Tree: tree, Path: path, Op: berth.OpWrite, Kind: berth.KindFile}
}

func paths(e Event) string {
	var out []string
	for _, c := range e.Changes {
		out = append(out, c.Path)
	}
	return strings.Join(out, " ")
}

func TestFeedDelivers(t *testing.T) {
	f, source := testFeed(t, Options{})
	all := f.Subscribe("", everything)
	mine := f.Subscribe("", Filter{Change: func(c Change) bool { return c.Tree == "acme/members/ann" }})
	source.add(change("acme/members/ann", "a"), change("acme/shared", "b"), change("acme/machines/i1", ".npm/x"))
	if got := paths(next(t, all)); got != "a b" {
		t.Errorf("all: got %q, want the changes but not the machine's home", got)
	}
	if got := paths(next(t, mine)); got != "a" {
		t.Errorf("mine: got %q, want a", got)
	}
	f.PublishMachine(Machine{Chat: "c", State: "running"})
	if e := next(t, all); e.Machine == nil || e.Machine.State != "running" || e.Name() != "machine" {
		t.Errorf("got %+v, want the machine's state", e)
	}
}

func TestFeedResumes(t *testing.T) {
	f, source := testFeed(t, Options{})
	sub := f.Subscribe("", everything)
	var ids []string
	for i := range 5 {
		source.add(change("acme/shared", fmt.Sprint(i)))
		ids = append(ids, next(t, sub).ID)
	}
	again := f.Subscribe(ids[1], everything)
	for i := 2; i < 5; i++ {
		if got := paths(next(t, again)); got != fmt.Sprint(i) {
			t.Errorf("resumed: got %q, want %d", got, i)
		}
	}
	if f.Cursor() != ids[4] || sub.Position() != ids[4] {
		t.Errorf("cursor %s, position %s, want %s", f.Cursor(), sub.Position(), ids[4])
	}
}

func TestFeedResets(t *testing.T) {
	f, source := testFeed(t, Options{RingEvents: 3})
	epoch, _, _ := ParseEventID(f.Cursor())
	behind := f.Subscribe("", everything)
	for i := range 5 {
		current := f.Subscribe("", everything)
		source.add(change("acme/shared", fmt.Sprint(i)))
		next(t, current)
	}
	tests := []struct {
		name  string
		sub   *Subscription
		want  string
		epoch string
	}{
		{"left the ring", behind, "overflow", epoch},
		{"another epoch", f.Subscribe("elsewhere.3", everything), "restart", epoch},
		{"from the future", f.Subscribe(epoch+".999", everything), "gap", epoch},
		{"nonsense", f.Subscribe("nonsense", everything), "gap", epoch},
	}
	for _, tt := range tests {
		e := next(t, tt.sub)
		if e.Reset != tt.want || e.ID != f.Cursor() {
			t.Errorf("%s: got %+v, want reset %q", tt.name, e, tt.want)
		}
		source.add(change("acme/shared", "after"))
		if got := paths(next(t, tt.sub)); got != "after" {
			t.Errorf("%s: after the reset got %q", tt.name, got)
		}
	}
}

func TestFeedFollowsItsSource(t *testing.T) {
	f, source := testFeed(t, Options{})
	sub := f.Subscribe("", everything)
	source.add(change("acme/shared", "1"))
	next(t, sub)

	source.set(func() { source.broken = errors.New("away") })
	source.set(func() { source.broken = nil })
	source.add(change("acme/shared", "2"))
	if e := next(t, sub); paths(e) != "2" {
		t.Errorf("after a broken connection: got %+v, want 2", e)
	}
	source.set(func() { source.epoch, source.changes = "m2", nil })
	if e := next(t, sub); e.Reset != "restart" {
		t.Errorf("after a restart of the source: got %+v, want a reset", e)
	}
	source.add(change("acme/shared", "3"))
	if e := next(t, sub); paths(e) != "3" {
		t.Errorf("after the reset: got %+v, want 3", e)
	}
}

func TestFeedBounds(t *testing.T) {
	f, source := testFeed(t, Options{RingBytes: 10_000})
	long := strings.Repeat("x", 1000)
	current := f.Subscribe("", everything)
	for range 100 {
		source.add(change("acme/shared", long))
		next(t, current)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes > 10_000 || len(f.ring) > 10 || len(f.ring) == 0 {
		t.Errorf("the ring has %d events and %d bytes", len(f.ring), f.bytes)
	}
}

func TestChangesNameCalls(t *testing.T) {
	ann := func(chat, machine berth.ID) berth.View {
		return berth.View{Workspace: "acme", User: "ann", Chat: chat, Machine: machine, Experts: []berth.ID{"profy"}}
	}
	bob := berth.View{Workspace: "acme", User: "bob", Chat: "b", Machine: "i3"}
	calls := memCalls{
		{ID: "old", View: ann("c1", "i1"), Started: now.Add(-time.Hour), Ended: now.Add(-time.Minute), Checkpoint: 1},
		{ID: "k1", View: ann("c1", "i1"), Started: now.Add(-time.Second), Checkpoint: 2},
		{ID: "k2", View: bob, Started: now.Add(-time.Second), Ended: now.Add(-clockStep / 2), Checkpoint: 3},
		{ID: "k3", View: bob, Started: now.Add(time.Second), Checkpoint: 0},
	}
	f, source := testFeed(t, Options{Calls: calls})
	sub := f.Subscribe("", everything)
	source.add(change("acme/members/ann", "a"), change("acme/shared", "s"), change("acme/members/eve", "e"))
	e := next(t, sub)
	want := []string{"[k1] c1", "[k1 k2] ", "[] "}
	for i, c := range e.Changes {
		if got := fmt.Sprint(c.Calls, " ", c.Chat); got != want[i] {
			t.Errorf("%s %s: got %q, want %q", c.Tree, c.Path, got, want[i])
		}
	}
	disk, shared := berth.MemberTree("acme", "ann"), berth.SharedTree("acme")
	for _, tt := range []struct {
		id   berth.ID
		tree berth.Tree
		want uint64
	}{{"", disk, 2}, {"", shared, 3}, {"old", disk, 1}, {"k2", disk, 0}, {"k3", shared, 0}, {"none", disk, 0}, {"", berth.MemberTree("x", "y"), 0}} {
		c, ok := f.Baseline(tt.id, tt.tree)
		if ok != (tt.want != 0) || ok && c.Checkpoint != tt.want {
			t.Errorf("Baseline(%q, %v) = %d, %v; want %d", tt.id, tt.tree, c.Checkpoint, ok, tt.want)
		}
	}
}

func TestReplacementIsOneWrite(t *testing.T) {
	f, source := testFeed(t, Options{})
	sub := f.Subscribe("", everything)
	temp := "d/" + berth.PutPrefix + "abc"
	rename := change("acme/shared", "d/file")
	rename.Op, rename.From = berth.OpRename, temp
	source.add(change("acme/shared", temp), rename)
	e := next(t, sub)
	if c := e.Changes[0]; len(e.Changes) != 1 || c.Path != "d/file" || c.Op != berth.OpWrite || c.From != "" {
		t.Errorf("got %+v, want one write", e.Changes)
	}
}

func TestEventData(t *testing.T) {
	c := Change{Change: berth.Change{Path: "a\xffb", From: "ok"}, Calls: []berth.ID{"c1"}}
	data, err := Event{ID: "e.1", Changes: []Change{c}}.Data()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Changes []struct {
			PathBytes []byte   `json:"path_base64"`
			FromBytes []byte   `json:"from_base64"`
			Calls     []string `json:"calls"`
		} `json:"changes"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if string(got.Changes[0].PathBytes) != c.Path || got.Changes[0].FromBytes != nil || len(got.Changes[0].Calls) != 1 {
		t.Errorf("got %s", data)
	}
	data, err = Event{ID: "e7.1", Reset: "gap"}.Data()
	if err != nil || string(data) != `{"epoch":"e7","reason":"gap"}` {
		t.Errorf("reset: got %s, %v", data, err)
	}
}

func FuzzParseEventID(f *testing.F) {
	for _, s := range []string{"e.1", "", ".", "e.", ".1", "e.-1", "e.01", "e.18446744073709551616", "a.b.1", "é.5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		epoch, seq, err := ParseEventID(s)
		if err == nil && eventID(epoch, seq) != s {
			t.Errorf("ParseEventID(%q) = %q, %d", s, epoch, seq)
		}
	})
}
