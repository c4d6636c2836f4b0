package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // so that a chat's time zone can be checked on any host

	"github.com/labstack/echo/v4"

	"berth"
)

// maxExperts is how many experts a chat may have: each is a mount.
const maxExperts = 16

// chatPrefix is what the keys of a principal's chats begin with. All keys of a
// workspace share one prefix, as their chats share one name space.
func chatPrefix(ws berth.ID, p principal) string {
	if p.kind == kindMember {
		return fmt.Sprintf("chats/%s/members/%s/", ws, p.user)
	}
	return fmt.Sprintf("chats/%s/keys/", ws)
}

func (p owner) chatKey(chat berth.ID) string {
	return chatPrefix(p.workspace, p.principal) + string(chat)
}

// owns reports whether the chat's record belongs to the principal.
func (p owner) owns(c chatRecord) bool { return p.kind == kindMember || c.Key == p.key }

// view returns what the chat's machine may see.
func (c chatRecord) view(ws berth.ID) berth.View {
	return berth.View{Workspace: ws, Machine: c.Machine, Chat: c.Chat, User: c.User, EndUser: c.EndUser, Experts: c.Experts}
}

// chat returns a chat of the principal; any other is not found.
func (s *Server) chat(ctx context.Context, p owner, chat berth.ID) (chatRecord, error) {
	rec, _, err := read[chatRecord](ctx, s.records, p.chatKey(chat))
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!p.owns(rec) || rec.Deleting) {
		return chatRecord{}, notFound("chat", string(chat))
	}
	return rec, err
}

// chatParam returns the chat that the path names.
func (s *Server) chatParam(c echo.Context, p owner) (chatRecord, error) {
	id, err := idParam(c, "chat", "chat")
	if err != nil {
		return chatRecord{}, err
	}
	return s.chat(c.Request().Context(), p, id)
}

type chatBody struct {
	EndUser *string  `json:"end_user"`
	Title   *string  `json:"title"`
	Experts []string `json:"experts"`
	TZ      *string  `json:"tz"`
}

// apply checks the body and puts it into the record.
func (b chatBody) apply(c *chatRecord) error {
	if b.Title != nil {
		if err := checkTitle("title", *b.Title); err != nil {
			return err
		}
		c.Title = *b.Title
	}
	for _, name := range b.Experts {
		expert, err := berth.ParseExpert(name)
		if err != nil {
			return err
		}
		if err := c.addExpert(expert); err != nil {
			return err
		}
	}
	if b.TZ != nil {
		if len(*b.TZ) > 64 || *b.TZ == "" || *b.TZ == "Local" {
			return fmt.Errorf("invalid tz %.70q: it is not the name of a time zone: %w", *b.TZ, fs.ErrInvalid)
		}
		if _, err := time.LoadLocation(*b.TZ); err != nil {
			return fmt.Errorf("invalid tz %q: it is not the name of a time zone: %w", *b.TZ, fs.ErrInvalid)
		}
		c.TZ = *b.TZ
	}
	return nil
}

func (c *chatRecord) addExpert(expert berth.ID) error {
	if slices.Contains(c.Experts, expert) {
		return nil
	}
	if len(c.Experts) >= maxExperts {
		return fmt.Errorf("cannot add expert %q: the chat has %d, no more are possible: %w", expert, len(c.Experts), fs.ErrInvalid)
	}
	c.Experts = append(slices.Clone(c.Experts), expert)
	return nil
}

// putChat makes a chat or changes its title, experts (which are only added) and
// time zone. It costs nothing: no machine is started.
func (s *Server) putChat(c echo.Context, p owner) error {
	id, err := idParam(c, "chat", "chat")
	if err != nil {
		return err
	}
	body, err := decodeBody[chatBody](c)
	if err != nil {
		return err
	}
	endUser, err := p.endUser(body)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	rec, err := update(ctx, s.records, p.chatKey(id), func(now *chatRecord) (chatRecord, error) {
		if now == nil {
			return s.newChat(p, id, endUser, body)
		}
		switch {
		case !p.owns(*now):
			return *now, notFound("chat", string(id))
		case now.Deleting:
			return *now, fmt.Errorf("cannot change chat %q: it is being deleted: %w", id, berth.ErrConflict)
		case endUser != "" && endUser != now.EndUser:
			return *now, fmt.Errorf("cannot give chat %q to end user %q: it belongs to another: %w", id, endUser, berth.ErrConflict)
		}
		next := *now
		if err := body.apply(&next); err != nil {
			return next, err
		}
		if next.Title == now.Title && next.TZ == now.TZ && len(next.Experts) == len(now.Experts) {
			return next, errUnchanged
		}
		return next, nil
	})
	if err != nil {
		return err
	}
	return s.answerChat(c, rec)
}

// endUser returns the end user that the body names; only keys have them.
func (p owner) endUser(body chatBody) (berth.ID, error) {
	switch {
	case body.EndUser == nil:
		return "", nil
	case p.kind == kindMember:
		return "", fmt.Errorf("cannot give a member's chat to an end user: only API keys have end users: %w", fs.ErrInvalid)
	}
	return berth.ParseID("end user", *body.EndUser)
}

func (s *Server) newChat(p owner, id, endUser berth.ID, body chatBody) (chatRecord, error) {
	if p.kind == kindKey && endUser == "" {
		return chatRecord{}, fmt.Errorf("cannot make chat %q: the body must name its \"end_user\": %w", id, fs.ErrInvalid)
	}
	rec := chatRecord{
		Chat: id, User: p.user, Key: p.key, EndUser: endUser,
		Machine: berth.NewMachineID(), Experts: []berth.ID{berth.DefaultExpert}, Created: s.o.Now().UTC(),
	}
	return rec, body.apply(&rec)
}

type chatAnswer struct {
	ID      berth.ID   `json:"id"`
	EndUser berth.ID   `json:"end_user,omitempty"`
	Title   string     `json:"title,omitempty"`
	Experts []berth.ID `json:"experts"`
	TZ      string     `json:"tz,omitempty"`
	Created time.Time  `json:"created"`
	Machine Machine    `json:"machine"`
}

func (s *Server) chatAnswer(ctx context.Context, rec chatRecord) (chatAnswer, error) {
	m, err := s.machine(ctx, rec)
	return chatAnswer{
		ID: rec.Chat, EndUser: rec.EndUser, Title: rec.Title, Experts: rec.Experts, TZ: rec.TZ, Created: rec.Created, Machine: m,
	}, err
}

func (s *Server) answerChat(c echo.Context, rec chatRecord) error {
	c.Response().Header().Set(cursorHeader, s.o.Feed.Cursor())
	answer, err := s.chatAnswer(c.Request().Context(), rec)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, answer)
}

func (s *Server) getChat(c echo.Context, p owner) error {
	rec, err := s.chatParam(c, p)
	if err != nil {
		return err
	}
	return s.answerChat(c, rec)
}

// listChats answers a page of the principal's chats, by id.
func (s *Server) listChats(c echo.Context, p owner) error {
	limit, err := limitParam(c, 200)
	if err != nil {
		return err
	}
	c.Response().Header().Set(cursorHeader, s.o.Feed.Cursor())
	ctx := c.Request().Context()
	all, err := list[chatRecord](ctx, s.records, chatPrefix(p.workspace, p.principal))
	if err != nil {
		return err
	}
	after := berth.ID(c.QueryParam("after"))
	page := struct {
		Chats []chatAnswer `json:"chats"`
		Next  berth.ID     `json:"next,omitempty"`
	}{Chats: []chatAnswer{}}
	for _, rec := range all {
		if !p.owns(rec) || rec.Deleting || strings.Compare(string(rec.Chat), string(after)) <= 0 {
			continue
		}
		if len(page.Chats) == limit {
			page.Next = page.Chats[limit-1].ID
			break
		}
		answer, err := s.chatAnswer(ctx, rec)
		if err != nil {
			return err
		}
		page.Chats = append(page.Chats, answer)
	}
	return c.JSON(http.StatusOK, page)
}

// deleteChat destroys the chat's machine with its home and, for a key's chat,
// the session's files, and then the chat. A member's disk is not touched. It
// can be repeated until it succeeds.
func (s *Server) deleteChat(c echo.Context, p owner) error {
	id, err := idParam(c, "chat", "chat")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	rec, err := update(ctx, s.records, p.chatKey(id), func(now *chatRecord) (chatRecord, error) {
		switch {
		case now == nil || !p.owns(*now):
			return chatRecord{}, notFound("chat", string(id))
		case now.Deleting:
			return *now, errUnchanged
		}
		now.Deleting = true
		return *now, nil
	})
	if err != nil {
		return err
	}
	view := rec.view(p.workspace)
	if s.o.Machines != nil {
		if err := unlessNone(s.o.Machines.Destroy(ctx, view)); err != nil {
			return fmt.Errorf("cannot delete chat %q: its machine: %w", id, err)
		}
	}
	if rec.EndUser != "" {
		err := s.o.Trees.RemoveTree(ctx, berth.SessionTree(p.workspace, rec.EndUser, id))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot delete chat %q: its files: %w", id, err)
		}
	}
	if err := remove(ctx, s.records, p.chatKey(id)); err != nil {
		return err
	}
	s.owners.forget(p.workspace, id)
	return c.NoContent(http.StatusNoContent)
}
