package api

import (
	"context"
	"sync"
)

// cuts knows the requests under way by the names of what they depend on (a
// token, a member, a key, a session) and ends them when that is revoked.
type cuts struct {
	mu     sync.Mutex
	byName map[string]map[*hold]struct{}
	all    map[*hold]struct{}
}

// A hold is one request under way.
type hold struct {
	cuts   *cuts
	ctx    context.Context // ends when the request is cut
	cancel context.CancelCauseFunc
	names  []string // guarded by cuts.mu
	stream bool     // guarded by cuts.mu
}

func newCuts() *cuts {
	return &cuts{byName: make(map[string]map[*hold]struct{}), all: make(map[*hold]struct{})}
}

// hold registers a request. It must be released.
func (c *cuts) hold(ctx context.Context) *hold {
	h := &hold{cuts: c}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[h] = struct{}{}
	return h
}

// under lets cut(name) end the request.
func (h *hold) under(name string) {
	c := h.cuts
	c.mu.Lock()
	defer c.mu.Unlock()
	h.names = append(h.names, name)
	if c.byName[name] == nil {
		c.byName[name] = make(map[*hold]struct{})
	}
	c.byName[name][h] = struct{}{}
}

func (h *hold) release() {
	c := h.cuts
	c.mu.Lock()
	delete(c.all, h)
	for _, name := range h.names {
		delete(c.byName[name], h)
		if len(c.byName[name]) == 0 {
			delete(c.byName, name)
		}
	}
	c.mu.Unlock()
	h.cancel(nil)
}

// cut ends the requests under a name, with the cause.
func (c *cuts) cut(name string, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.byName[name] {
		h.cancel(cause)
	}
}

// crowded says whether there are more requests under a name than most.
func (c *cuts) crowded(name string, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byName[name]) > most
}

// streaming marks the request of ctx as a stream, unless its principal already
// has as many as allowed.
func (c *cuts) streaming(ctx context.Context, name string, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	var mine *hold
	for h := range c.byName[name] {
		if h.stream {
			n++
		}
		if h.ctx == ctx {
			mine = h
		}
	}
	if n >= most || mine == nil {
		return false
	}
	mine.stream = true
	return true
}

// cutStreams ends all streams, cutAll all requests.
func (c *cuts) cutStreams(cause error) { c.cutIf(cause, func(h *hold) bool { return h.stream }) }
func (c *cuts) cutAll(cause error)     { c.cutIf(cause, func(*hold) bool { return true }) }

func (c *cuts) cutIf(cause error, which func(*hold) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.all {
		if which(h) {
			h.cancel(cause)
		}
	}
}
