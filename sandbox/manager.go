package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"berth"
)

// Options say how a manager works. Mounts, Provider, Records and SlotsDir are
// required.
type Options struct {
	Mounts       Mounts
	Provider     Provider
	Records      berth.Records
	SlotsDir     string                         // where slots are: SlotsDir/SLOT/ctl is the gateway's
	Pool         int                            // warm containers to keep ready
	MaxRunning   int                            // claimed containers at once; 0 is no bound
	MaxCalls     int                            // calls of one machine at once, more wait; 0 is 32
	Idle         func(berth.View) time.Duration // how long without a call until the machine is stopped; 0 or nil is never
	FlushTimeout time.Duration                  // how long a stop waits for uploads; 0 is 60 s
	AgentTimeout time.Duration                  // how long a new container's agent may take to dial; 0 is 15 s
	Logger       *slog.Logger
}

const (
	maxWaiting   = 4               // times MaxCalls is how many calls a machine may have, waiting ones too
	startTimeout = time.Minute     // of a start, which may have to make a container
	reconnect    = 3 * time.Second // for an agent to dial again
	cleanTimeout = 30 * time.Second

	checkpointTimeout = 5 * time.Second
)

// A Manager runs the machines of an installation. Its methods can be used from
// many goroutines. Start comes first and Close last.
type Manager struct {
	o      Options
	pool   *pool
	feed   *feed
	calls  *callLog
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	group  sync.WaitGroup // everything the manager started

	// mu protects what follows and the marked fields of each machine. It is
	// never held over a call to mountd, the provider, the records or an agent.
	mu       sync.Mutex
	info     Info
	machines map[berth.ID]*machine
	closed   bool
}

// machine is a machine that is running or in use by a caller.
type machine struct {
	id   berth.ID
	lock chan struct{} // holds one token: taken for a transition
	turn chan struct{} // holds a token for each call that runs

	// Protected by Manager.mu.
	users    int // callers and transitions that hold it
	view     berth.View
	state    State
	reason   string
	image    string
	since    time.Time
	box      *box // the claimed container, if any
	stopping bool // no call may begin
	calls    int
	idle     *time.Timer

	// Protected by the token.
	rec record
}

// New returns a manager that does nothing yet.
func New(o Options) *Manager {
	if o.MaxCalls == 0 {
		o.MaxCalls = 32
	}
	if o.FlushTimeout == 0 {
		o.FlushTimeout = time.Minute
	}
	if o.AgentTimeout == 0 {
		o.AgentTimeout = 15 * time.Second
	}
	if o.Idle == nil {
		o.Idle = func(berth.View) time.Duration { return 0 }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Manager{
		o: o, pool: newPool(o), feed: newFeed(), calls: newCallLog(),
		ctx: ctx, cancel: cancel, machines: map[berth.ID]*machine{},
	}
}

// Start repairs what an earlier process left and begins to fill the pool.
func (m *Manager) Start(ctx context.Context) error {
	info, err := m.o.Provider.Info(ctx)
	if err != nil {
		return fmt.Errorf("cannot start sandboxes: %w", err)
	}
	m.mu.Lock()
	m.info = info
	m.mu.Unlock()
	if err := m.reconcile(ctx); err != nil {
		return fmt.Errorf("cannot start sandboxes: %w", err)
	}
	m.group.Go(func() { m.pool.fill(m.ctx) })
	m.group.Go(func() { m.sweepLoop(m.ctx) })
	return nil
}

// Close ends what the manager does and waits for it. Machines keep running: the
// next Start takes them over. Use StopAll before to end them.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	var boxes []*box
	for _, k := range m.machines {
		if k.idle != nil {
			k.idle.Stop()
		}
		if k.box != nil {
			boxes = append(boxes, k.box)
		}
	}
	m.mu.Unlock()
	m.cancel()
	for _, b := range boxes {
		b.close(errAgentGone)
	}
	m.feed.close()
	done := make(chan struct{})
	go func() {
		m.group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("cannot close sandboxes: %w", ctx.Err())
	}
	m.pool.empty(ctx)
	return nil
}

// Run runs a tool in the chat's machine, which it starts or wakes when it is not
// running, and returns the tool's JSON answer. Errors match fs.ErrInvalid for
// bad arguments, fs.ErrNotExist and fs.ErrPermission for files and for unknown
// tools, ErrBusy, ErrTerminated, and berth.ErrUnavailable when the machine
// cannot be reached. When ctx ends the command is killed.
func (m *Manager) Run(ctx context.Context, v berth.View, c Call) (json.RawMessage, error) {
	if !slices.Contains(v.Experts, c.Expert) {
		v.Experts = append(slices.Clone(v.Experts), c.Expert)
	}
	if err := v.Check(); err != nil {
		return nil, err
	}
	use, err := parseCall(c, v.Workdir(c.Expert)[len(berth.Home)+1:])
	if err != nil {
		return nil, err
	}
	k := m.hold(v)
	defer m.drop(k)
	b, err := m.enter(ctx, k, v)
	if err != nil {
		return nil, err
	}
	defer m.leave(k)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(b.ctx, func() { cancel(context.Cause(b.ctx)) })()
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	conn := b.link.current()
	if conn == nil {
		return nil, errAgentGone
	}
	done := m.calls.begin(CallInfo{
		ID: c.ID, Tool: c.Tool, Expert: c.Expert, View: v, Checkpoint: m.checkpoint(ctx, v), Started: time.Now(),
	})
	defer done()
	answer, err := use(ctx, conn)
	if err != nil {
		return nil, err
	}
	return encodeAnswer(answer)
}

// checkpoint marks what the view's files are before a call. Without it the call
// goes on: its diffs are then against what was there at an earlier mark.
func (m *Manager) checkpoint(ctx context.Context, v berth.View) uint64 {
	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	mark, err := m.o.Mounts.Checkpoint(ctx, viewTrees(v))
	if err != nil && ctx.Err() != context.Canceled {
		m.o.Logger.Warn("Cannot set checkpoint before a call", "machine", v.Machine, "err", err)
	}
	return mark
}

// encodeAnswer makes JSON without the escapes that are for HTML only.
func encodeAnswer(answer any) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(answer); err != nil {
		return nil, fmt.Errorf("cannot encode answer: %w", err)
	}
	return bytes.TrimSpace(buf.Bytes()), nil
}

// viewTrees returns the trees of a view, each once.
func viewTrees(v berth.View) []berth.Tree {
	var trees []berth.Tree
	for _, p := range v.Places() {
		if !slices.Contains(trees, p.Tree) {
			trees = append(trees, p.Tree)
		}
	}
	return trees
}

// hold returns the machine of a view and keeps it in the table until drop.
func (m *Manager) hold(v berth.View) *machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.machines[v.Machine]
	if k == nil {
		k = &machine{id: v.Machine, view: v, lock: make(chan struct{}, 1), turn: make(chan struct{}, m.o.MaxCalls)}
		m.machines[v.Machine] = k
	}
	k.users++
	return k
}

func (m *Manager) drop(k *machine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.users--; k.users == 0 && k.box == nil {
		delete(m.machines, k.id)
	}
}

// transition runs do with the machine's token. It goes on when ctx ends, so
// that a caller who gives up leaves nothing half done; the next caller finds
// what came of it.
func (m *Manager) transition(ctx context.Context, k *machine, limit time.Duration, do func(context.Context) error) error {
	select {
	case k.lock <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if ctx.Err() != nil { // both were so: whose access was revoked starts nothing
		<-k.lock
		return context.Cause(ctx)
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		<-k.lock
		return fmt.Errorf("cannot change machine %s: berth is stopping: %w", k.id, berth.ErrUnavailable)
	}
	k.users++
	result := make(chan error, 1)
	m.group.Go(func() {
		defer m.drop(k)
		defer func() { <-k.lock }()
		ctx, cancel := context.WithTimeoutCause(m.ctx, limit,
			fmt.Errorf("machine %s was not ready in %v: %w", k.id, limit, berth.ErrUnavailable))
		defer cancel()
		result <- do(ctx)
	})
	m.mu.Unlock()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
