package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/errgroup"

	"berth"
)

type memberAnswer struct {
	User    berth.ID   `json:"user"`
	Created time.Time  `json:"created"`
	Removed *time.Time `json:"removed,omitempty"`
	Token   string     `json:"token,omitempty"`
}

func (s *Server) listMembers(c echo.Context, a admin) error {
	recs, err := list[memberRecord](c.Request().Context(), s.records, memberKey(a.workspace, ""))
	if err != nil {
		return err
	}
	members := make([]memberAnswer, len(recs))
	for i, m := range recs {
		members[i] = memberAnswer{User: m.User, Created: m.Created, Removed: m.Removed}
	}
	return c.JSON(http.StatusOK, map[string]any{"members": members})
}

// putMember makes a member, or brings a removed one back to its files, and
// answers the token, once. Repeated, it changes nothing unless told to rotate
// the token.
func (s *Server) putMember(c echo.Context, a admin) error {
	user, err := idParam(c, "user", "user")
	if err != nil {
		return err
	}
	body, err := decodeBody[struct {
		Rotate bool `json:"rotate"`
	}](c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	token, now := NewMemberToken(), s.o.Now().UTC()
	var old string
	var fresh bool
	rec, err := update(ctx, s.records, memberKey(a.workspace, user), func(m *memberRecord) (memberRecord, error) {
		next := memberRecord{Workspace: a.workspace, User: user, Created: now}
		old, fresh = "", m == nil || m.Removed != nil || body.Rotate
		if m != nil {
			next, old = *m, m.Token
		}
		if !fresh {
			return next, errUnchanged
		}
		next.Token, next.Removed = HashToken(token), nil
		return next, nil
	})
	if err != nil {
		return err
	}
	if !fresh {
		token = ""
	}
	if err := s.exchangeToken(ctx, old, token, tokenRecord{Kind: kindMember, Workspace: a.workspace, User: user}); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, memberAnswer{User: user, Created: rec.Created, Token: token})
}

// exchangeToken makes the record of a new token and revokes the old one. Without
// a new token it does nothing.
func (s *Server) exchangeToken(ctx context.Context, oldHash, token string, t tokenRecord) error {
	if token == "" {
		return nil
	}
	if err := s.addToken(ctx, HashToken(token), t); err != nil {
		return err
	}
	if oldHash == "" {
		return nil
	}
	return s.revokeToken(ctx, oldHash)
}

// deleteMember takes a member's access away: token, sessions and streams end at
// once and its machines stop. Its files stay.
func (s *Server) deleteMember(c echo.Context, a admin) error {
	user, err := idParam(c, "user", "user")
	if err != nil {
		return err
	}
	ctx := context.WithoutCancel(c.Request().Context()) // a revocation is not left half done
	now := s.o.Now().UTC()
	rec, err := update(ctx, s.records, memberKey(a.workspace, user), func(m *memberRecord) (memberRecord, error) {
		switch {
		case m == nil:
			return memberRecord{}, notFound("member", string(user))
		case m.Removed != nil:
			return *m, errUnchanged // again, to finish what did not succeed
		}
		m.Removed, m.SignInsAfter = &now, now
		return *m, nil
	})
	if err != nil {
		return err
	}
	s.cuts.cut(memberName(a.workspace, user), errRevoked)
	if err := s.revokeToken(ctx, rec.Token); err != nil {
		return err
	}
	chats, err := list[chatRecord](ctx, s.records, chatPrefix(a.workspace, principal{kind: kindMember, user: user}))
	if err != nil {
		return err
	}
	if err := s.stopMachines(ctx, a.workspace, chats); err != nil {
		return fmt.Errorf("member %q has no access any more, but: %w", user, err)
	}
	return c.NoContent(http.StatusNoContent)
}

// stopMachines stops the machines of chats, a few at a time.
func (s *Server) stopMachines(ctx context.Context, ws berth.ID, chats []chatRecord) error {
	if s.o.Machines == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var failed []error
	var group errgroup.Group
	group.SetLimit(8)
	for _, chat := range chats {
		group.Go(func() error {
			if err := unlessNone(s.o.Machines.Stop(ctx, chat.view(ws))); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Errorf("cannot stop machine of chat %q (repeat the request): %w", chat.Chat, err))
			}
			return nil
		})
	}
	group.Wait()
	return errors.Join(failed...)
}
