package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
)

// The bounds of what is under way at once.
const (
	// maxRequests are those of one principal, its event streams among them.
	maxRequests = maxStreams + 128
	// maxBulk are the tool calls that carry a whole file, of all principals and of
	// one. The file is in memory several times over while it is decoded and encoded.
	maxBulk, maxBulkEach = 16, 4
)

// lingerTime is how long the rest of a body is read that was refused.
const lingerTime = 5 * time.Second

// isBulk says whether calls of a tool carry whole files.
func isBulk(tool string) bool { return tool == "read_file" || tool == "write_file" }

// timed bounds how long a request's body may take to come, and its answer to be
// taken. Handlers that send or take more than one piece give each its own time.
func (s *Server) timed(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		conn := http.NewResponseController(c.Response())
		if c.Request().ContentLength != 0 {
			bodyDeadline(c, time.Now().Add(s.o.TransferTime))
		}
		// Deadlines are only refused by a connection that has none, in tests.
		_ = conn.SetWriteDeadline(time.Time{}) // that of an answer before
		c.Response().Before(func() { _ = conn.SetWriteDeadline(time.Now().Add(s.o.TransferTime)) })
		return next(c)
	}
}

// bodyDeadline sets until when the request's body must be here.
func bodyDeadline(c echo.Context, end time.Time) {
	_ = http.NewResponseController(c.Response()).SetReadDeadline(end) // see timed
}

// A turns bounds what runs at once, for all and for each name.
type turns struct {
	all  chan struct{}
	each int

	mu     sync.Mutex // protects what follows
	byName map[string]*turn
}

// A turn is those of one name.
type turn struct {
	taken chan struct{}
	users int // who have or wait for one; protected by turns.mu
}

func newTurns(all, each int) *turns {
	return &turns{all: make(chan struct{}, all), each: each, byName: make(map[string]*turn)}
}

// take waits for a turn. The function that it returns gives it back.
func (t *turns) take(ctx context.Context, name string) (giveBack func(), err error) {
	t.mu.Lock()
	mine := t.byName[name]
	if mine == nil {
		mine = &turn{taken: make(chan struct{}, t.each)}
		t.byName[name] = mine
	}
	mine.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(t.byName, name)
		}
	}
	select {
	case mine.taken <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
	select {
	case t.all <- struct{}{}:
	case <-ctx.Done():
		<-mine.taken
		leave()
		return nil, context.Cause(ctx)
	}
	return func() {
		<-t.all
		<-mine.taken
		leave()
	}, nil
}
