package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"berth"
	"berth/preview"
)

// TestMain fails the run if a request, stream or file operation is left behind.
func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	for end := time.Now().Add(5 * time.Second); code == 0 && leftovers() != ""; runtime.Gosched() {
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, "goroutines left behind:\n"+leftovers())
			code = 1
		}
	}
	os.Exit(code)
}

func leftovers() string {
	buf := make([]byte, 1<<20)
	var left []string
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "berth/") && !strings.Contains(g, "TestMain") {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}

// memRecords keeps records in memory.
type memRecords struct {
	mu   sync.Mutex
	recs map[string]berth.Record
	n    int
	away bool // changes fail, as while the store is away
}

func newMemRecords() *memRecords { return &memRecords{recs: make(map[string]berth.Record)} }

func (m *memRecords) Get(_ context.Context, key string) (berth.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rec, ok := m.recs[key]
	if !ok {
		return rec, fmt.Errorf("cannot get record %s: %w", key, fs.ErrNotExist)
	}
	return rec, nil
}

func (m *memRecords) List(_ context.Context, prefix string) ([]berth.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []berth.Record
	for key, rec := range m.recs {
		if strings.HasPrefix(key, prefix) {
			out = append(out, rec)
		}
	}
	slices.SortFunc(out, func(a, b berth.Record) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

func (m *memRecords) Put(_ context.Context, rec berth.Record) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.away:
		return "", fmt.Errorf("cannot put record %s: %w", rec.Key, berth.ErrUnavailable)
	case m.recs[rec.Key].Version != rec.Version:
		return "", fmt.Errorf("cannot put record %s: %w", rec.Key, berth.ErrConflict)
	case len(rec.Value) > berth.MaxRecord:
		return "", fmt.Errorf("cannot put record %s: it is too large: %w", rec.Key, fs.ErrInvalid)
	}
	m.n++
	rec.Version = strconv.Itoa(m.n)
	m.recs[rec.Key] = rec
	return rec.Version, nil
}

func (m *memRecords) Delete(_ context.Context, key, version string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	rec, ok := m.recs[key]
	switch {
	case !ok:
		return fmt.Errorf("cannot delete record %s: %w", key, fs.ErrNotExist)
	case rec.Version != version:
		return fmt.Errorf("cannot delete record %s: %w", key, berth.ErrConflict)
	}
	delete(m.recs, key)
	return nil
}

// memTrees keeps trees as plain directories, attached on demand. What a file had at
// checkpoint N is its version "N" too.
type memTrees struct {
	dir    string
	mu     sync.Mutex
	before map[string]string // "TREE/PATH@CHECKPOINT" to content
}

func (m *memTrees) AttachTree(_ context.Context, t berth.Tree) error {
	return os.MkdirAll(filepath.Join(m.dir, t.String()), 0o755)
}

func (m *memTrees) RemoveTree(_ context.Context, t berth.Tree) error {
	return os.RemoveAll(filepath.Join(m.dir, t.String()))
}

func (m *memTrees) ChangesSince(_ context.Context, t berth.Tree, checkpoint uint64) ([]berth.PathChange, bool, error) {
	if checkpoint > 9 {
		return nil, false, fmt.Errorf("checkpoint %d: %w", checkpoint, berth.ErrNotKept)
	}
	return []berth.PathChange{{Path: "f", Kind: berth.PathModified, File: berth.KindFile}}, false, nil
}

func (m *memTrees) Versions(_ context.Context, t berth.Tree, path string) ([]berth.Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []berth.Version
	for n := 9; n > 0; n-- {
		if content, ok := m.before[fmt.Sprintf("%s/%s@%d", t, path, n)]; ok {
			out = append(out, berth.Version{ID: strconv.Itoa(n), Size: int64(len(content)), End: berth.EndOverwritten})
		}
	}
	return out, nil
}

func (m *memTrees) OpenVersion(ctx context.Context, t berth.Tree, path, id string) (io.ReadCloser, int64, error) {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("version %q: %w", id, fs.ErrInvalid)
	}
	return m.Before(ctx, t, path, n)
}

func (m *memTrees) Restore(ctx context.Context, t berth.Tree, path, id string) error {
	body, _, err := m.OpenVersion(ctx, t, path, id)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.dir, t.String(), path), content, 0o644)
}

func (m *memTrees) Deleted(_ context.Context, t berth.Tree, dir string) ([]berth.DeletedFile, bool, error) {
	return []berth.DeletedFile{{Path: "below " + dir}}, false, nil
}

func (m *memTrees) Before(_ context.Context, t berth.Tree, path string, checkpoint uint64) (io.ReadCloser, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	content, ok := m.before[fmt.Sprintf("%s/%s@%d", t, path, checkpoint)]
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	return io.NopCloser(strings.NewReader(content)), int64(len(content)), nil
}

func (m *memTrees) Status(context.Context) (json.RawMessage, error) {
	return json.RawMessage(`{"dirty_files":0}`), nil
}

// memMachines runs "tools" in this process: each is a function of its arguments.
type memMachines struct {
	mu       sync.Mutex
	machines map[berth.ID]*Machine
	calls    []preview.Call
	views    map[berth.ID]berth.View
	feed     *preview.Feed
	run      func(ctx context.Context, v berth.View, c Call) (json.RawMessage, error)
}

func newMemMachines() *memMachines {
	return &memMachines{machines: make(map[berth.ID]*Machine), views: make(map[berth.ID]berth.View)}
}

func (m *memMachines) set(v berth.View, state string) {
	m.mu.Lock()
	m.machines[v.Machine] = &Machine{ID: v.Machine, State: state, Since: time.Now()}
	m.views[v.Machine] = v
	m.mu.Unlock()
	m.feed.PublishMachine(preview.Machine{View: v, Chat: v.Chat, Machine: v.Machine, State: state, Since: time.Now()})
}

func (m *memMachines) Run(ctx context.Context, v berth.View, c Call) (json.RawMessage, error) {
	if err := v.Check(); err != nil {
		return nil, err
	}
	if now, err := m.Machine(ctx, v.Machine); err == nil && now.State == "terminated" {
		return nil, fmt.Errorf("cannot run in machine %s: it was destroyed: %w", v.Machine, berth.ErrConflict)
	} else if now.State != "running" {
		m.set(v, "running")
	}
	m.mu.Lock()
	m.calls = append(m.calls, preview.Call{ID: c.ID, View: v, Checkpoint: uint64(len(m.calls) + 1), Started: time.Now()})
	run := m.run
	m.mu.Unlock()
	if run == nil {
		return json.Marshal(map[string]any{"tool": c.Tool, "expert": c.Expert, "args": c.Args, "experts": v.Experts})
	}
	return run(ctx, v, c)
}

func (m *memMachines) Machine(_ context.Context, id berth.ID) (Machine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.machines[id]; now != nil {
		return *now, nil
	}
	return Machine{ID: id, State: "waiting"}, nil
}

func (m *memMachines) end(v berth.View, state string) error {
	if now, _ := m.Machine(context.Background(), v.Machine); now.State == "waiting" || now.State == "terminated" {
		return fs.ErrNotExist
	}
	m.set(v, state)
	return nil
}

func (m *memMachines) Stop(_ context.Context, v berth.View) error    { return m.end(v, "sleeping") }
func (m *memMachines) Destroy(_ context.Context, v berth.View) error { return m.end(v, "terminated") }
func (m *memMachines) Wake(_ context.Context, v berth.View) error {
	m.set(v, "running")
	return nil
}

func (m *memMachines) Counts() (running, warm int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, now := range m.machines {
		if now.State == "running" {
			running++
		}
	}
	return running, 0
}

func (m *memMachines) CallByID(id berth.ID) (preview.Call, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.calls, func(c preview.Call) bool { return c.ID == id })
	if i < 0 {
		return preview.Call{}, false
	}
	return m.calls[i], true
}

func (m *memMachines) CallsOn(tree berth.Tree, from, to time.Time) []preview.Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []preview.Call
	for _, c := range m.calls {
		if !c.Started.After(to) && slices.ContainsFunc(c.View.Places(), func(p berth.Place) bool { return p.Tree == tree }) {
			out = append(out, c)
		}
	}
	return out
}

// memChanges is a source of changes that a test writes to.
type memChanges chan []berth.Change

func (m memChanges) Epoch() string { return "m" }
func (m memChanges) Close() error  { return nil }
func (m memChanges) Next(ctx context.Context) ([]berth.Change, error) {
	select {
	case changes := <-m:
		return changes, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// gateway is one server under test and those who use it.
type gateway struct {
	t        *testing.T
	server   *Server
	url      string
	now      time.Time // of the server's clock; changed between requests only
	records  *memRecords
	trees    *memTrees
	machines *memMachines
	changes  memChanges

	operator, admin, ann, key string // tokens
}

var app = fstest.MapFS{
	"index.html":        {Data: []byte("<!doctype html><title>Berth</title>")},
	"assets/app-1a2.js": {Data: []byte("console.log(1)")},
	"icon.svg":          {Data: []byte("<svg/>")},
}

var secret = bytes.Repeat([]byte{7}, 32)

func newGateway(t *testing.T, change func(*Options)) *gateway {
	t.Helper()
	g := &gateway{
		t: t, now: time.Now(), records: newMemRecords(), machines: newMemMachines(), changes: make(memChanges),
		operator: NewOperatorToken(), admin: NewAdminToken(), ann: NewMemberToken(), key: NewAPIKey(),
	}
	g.trees = &memTrees{dir: t.TempDir(), before: make(map[string]string)}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	feed := preview.NewFeed(preview.Options{
		Open:   func(context.Context, string, uint64) (preview.Stream, error) { return g.changes, nil },
		Calls:  g.machines,
		Logger: log,
	})
	t.Cleanup(feed.Close)
	g.machines.feed = feed
	o := Options{
		Records: g.records, Trees: g.trees, Machines: g.machines, Feed: feed, ViewDir: g.trees.dir, Secret: secret, App: app,
		PreviewHost: "gw.localhost", Tools: []string{"bash", "write_file"}, MaxUpload: 4 << 20, Logger: log,
		Now: func() time.Time { return g.now },
	}
	if change != nil {
		change(&o)
	}
	var err error
	if g.server, err = New(o); err != nil {
		t.Fatal(err)
	}
	err = Begin(t.Context(), g.records, Beginning{
		Workspace: "acme", User: "ann", KeyID: "k1",
		OperatorToken: g.operator, AdminToken: g.admin, MemberToken: g.ann, APIKey: g.key,
	}, g.now)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(g.server)
	t.Cleanup(srv.Close)
	g.url = srv.URL
	return g
}

// An answer is a response, read to its end.
type answer struct {
	t      *testing.T
	what   string
	status int
	header http.Header
	body   string
}

// request makes a request; headers are names and values in turn.
func (g *gateway) request(token, method, path, body string, headers ...string) *http.Request {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func (g *gateway) do(token, method, path, body string, headers ...string) answer {
	g.t.Helper()
	res, err := http.DefaultTransport.RoundTrip(g.request(token, method, path, body, headers...))
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{g.t, method + " " + path, res.StatusCode, res.Header, string(text)}
}

// ok checks the status and decodes the body into out unless that is nil.
func (a answer) ok(status int, out any) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: status %d, want %d: %.500s", a.what, a.status, status, a.body)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(a.body), out); err != nil {
			a.t.Fatalf("%s: cannot decode %.500q: %v", a.what, a.body, err)
		}
	}
	return a
}

// refused checks for an error with a message that holds each word.
func (a answer) refused(status int, code string, words ...string) {
	a.t.Helper()
	var p problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.status != status || p.Code != code || p.Message == "" {
		a.t.Errorf("%s: got %d %.300s, want %d with code %q", a.what, a.status, a.body, status, code)
	}
	for _, w := range words {
		if !strings.Contains(p.Message, w) {
			a.t.Errorf("%s: message %q does not name %q", a.what, p.Message, w)
		}
	}
}

// member makes another member of acme and returns the token.
func (g *gateway) member(user string) string {
	var made struct{ Token string }
	g.do(g.admin, "PUT", "/v1/members/"+user, "{}").ok(200, &made)
	return made.Token
}

// disk returns the path on this host of a file in a tree.
func (g *gateway) disk(t berth.Tree, path string) string {
	g.t.Helper()
	if err := g.trees.AttachTree(context.Background(), t); err != nil {
		g.t.Fatal(err)
	}
	return filepath.Join(g.trees.dir, t.String(), path)
}

func (g *gateway) write(t berth.Tree, path, content string) string {
	g.t.Helper()
	full := g.disk(t, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		g.t.Fatal(err)
	}
	return full
}

var (
	annDisk = berth.MemberTree("acme", "ann")
	shared  = berth.SharedTree("acme")
)
