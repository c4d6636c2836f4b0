package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/preview"
)

// maxStreams is how many event streams one principal may have open.
const maxStreams = 64

// events streams what happens to the principal's files and machines.
func (s *Server) events(c echo.Context, p owner) error {
	return s.stream(c, p, s.filter(c.Request().Context(), p))
}

// filter lets through what the principal may see: a member its disk and the
// shared directory, a key the session roots of its chats; and the machines of
// its own chats.
func (s *Server) filter(ctx context.Context, p owner) preview.Filter {
	if p.kind == kindMember {
		disk, shared := berth.MemberTree(p.workspace, p.user).String(), berth.SharedTree(p.workspace).String()
		return preview.Filter{
			Change:  func(c preview.Change) bool { return c.Tree == disk || c.Tree == shared },
			Machine: func(m preview.Machine) bool { return m.View.Workspace == p.workspace && m.View.User == p.user },
			Chat:    func(c preview.Change) bool { return c.User == p.user }, // others write to the shared directory, too
		}
	}
	owned := func(chat berth.ID) bool { return s.keyOf(ctx, p.workspace, chat) == p.key }
	return preview.Filter{
		Change: func(c preview.Change) bool {
			t, err := berth.ParseTree(c.Tree)
			return err == nil && t.Kind == berth.SessionRoot && t.Workspace == p.workspace && owned(t.Chat)
		},
		Machine: func(m preview.Machine) bool {
			return m.View.Workspace == p.workspace && m.View.EndUser != "" && owned(m.Chat)
		},
		Chat: func(preview.Change) bool { return true }, // a session root has one
	}
}

// chatEvents streams what happens in one chat: its machine, its directories,
// and changes elsewhere that were made during its tool calls.
func (s *Server) chatEvents(c echo.Context, p owner) error {
	rec, err := s.chatParam(c, p)
	if err != nil {
		return err
	}
	mine := s.filter(c.Request().Context(), p)
	machine := func(m preview.Machine) bool { return m.Chat == rec.Chat && mine.Machine(m) }
	session := berth.SessionTree(p.workspace, rec.EndUser, rec.Chat).String()
	change := func(c preview.Change) bool {
		if !mine.Change(c) {
			return false
		}
		if p.kind == kindKey {
			return c.Tree == session
		}
		return c.Chat == rec.Chat || inChatDir(c.Path, rec.Chat) || inChatDir(c.From, rec.Chat)
	}
	return s.stream(c, p, preview.Filter{Change: change, Machine: machine, Chat: mine.Chat})
}

// inChatDir reports whether a path of a member's disk is EXPERT/CHAT or below.
func inChatDir(path string, chat berth.ID) bool {
	_, rest, _ := strings.Cut(path, "/")
	first, _, _ := strings.Cut(rest, "/")
	return first == string(chat)
}

// stream sends events as they come until the client goes or loses its access.
// It goes on after Last-Event-ID (what a browser sends by itself) or ?since=.
func (s *Server) stream(c echo.Context, p owner, filter preview.Filter) error {
	r := c.Request()
	if !s.cuts.streaming(r.Context(), p.name(), maxStreams) {
		return fmt.Errorf("cannot open another event stream, there are %d: %w", maxStreams, ErrLimit)
	}
	since := or(r.Header.Get("Last-Event-ID"), c.QueryParam("since"))
	sub := s.o.Feed.Subscribe(since, filter)
	h := c.Response().Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no") // nginx would hold the events back
	c.Response().WriteHeader(http.StatusOK)
	out := eventWriter{w: c.Response(), ctl: http.NewResponseController(c.Response())}
	// An id alone gives the client a position before the first event.
	opening := "retry: 1000\n\n"
	if since == "" {
		opening = "retry: 1000\nid: " + sub.Position() + "\n\n"
	}
	err := out.send(opening)
	for err == nil {
		err = s.sendNext(r.Context(), sub, out)
	}
	return endOfStream(err)
}

// sendNext sends the next event, or a comment after a time without one.
func (s *Server) sendNext(ctx context.Context, sub *preview.Subscription, out eventWriter) error {
	wait, cancel := context.WithTimeoutCause(ctx, s.o.Heartbeat, errHeartbeat)
	defer cancel()
	event, err := sub.Next(wait)
	switch {
	case errors.Is(err, errHeartbeat):
		// The id keeps up with what the filter held back.
		return out.send(": still here\nid: " + sub.Position() + "\n\n")
	case err != nil:
		return err
	}
	data, err := event.Data()
	if err != nil {
		return err
	}
	return out.send(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", event.ID, event.Name(), data))
}

// errHeartbeat ends the wait for an event when it is time for a comment.
var errHeartbeat = errors.New("time for a heartbeat")

// endOfStream returns nil for the ends that a stream is meant to have: the
// client went, was too slow, or lost its access.
func endOfStream(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, errUnauthorized) || errors.Is(err, errStopping) || errors.Is(err, errClientGone) {
		return nil
	}
	return err
}

var errClientGone = errors.New("the client does not take what is sent")

// An eventWriter sends pieces of a stream at once.
type eventWriter struct {
	w   *echo.Response
	ctl *http.ResponseController
}

func (o eventWriter) send(text string) error {
	// A deadline is only refused by a writer that has none, in tests.
	_ = o.ctl.SetWriteDeadline(time.Now().Add(30 * time.Second))
	if _, err := o.w.Write([]byte(text)); err != nil {
		return errClientGone
	}
	if err := o.ctl.Flush(); err != nil {
		return errClientGone
	}
	return nil
}
