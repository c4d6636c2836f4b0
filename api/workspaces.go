package api

import (
	"fmt"
	"io/fs"
	"net/http"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"berth"
)

// maxTitle is the longest title or name in characters.
const maxTitle = 200

func checkTitle(what, s string) error {
	if n := utf8.RuneCountInString(s); n > maxTitle {
		return fmt.Errorf("invalid %s: it has %d characters, at most %d are allowed: %w", what, n, maxTitle, fs.ErrInvalid)
	}
	return nil
}

// putWorkspace makes a workspace and answers its admin's token, once. Repeated,
// it changes the title; with rotate it replaces the token.
func (s *Server) putWorkspace(c echo.Context, _ operator) error {
	ws, err := idParam(c, "ws", "workspace")
	if err != nil {
		return err
	}
	body, err := decodeBody[struct {
		Title  *string `json:"title"`
		Rotate bool    `json:"rotate"`
	}](c)
	if err != nil {
		return err
	}
	if body.Title != nil {
		if err := checkTitle("title", *body.Title); err != nil {
			return err
		}
	}
	ctx := c.Request().Context()
	token := NewAdminToken()
	var old string
	var fresh bool
	rec, err := update(ctx, s.records, workspaceKey(ws), func(now *workspaceRecord) (workspaceRecord, error) {
		next := workspaceRecord{Workspace: ws, Created: s.o.Now().UTC()}
		old, fresh = "", now == nil || body.Rotate
		if now != nil {
			next, old = *now, now.Token
		}
		if fresh {
			next.Token = HashToken(token)
		} else if body.Title == nil {
			return next, errUnchanged
		}
		if body.Title != nil {
			next.Title = *body.Title
		}
		return next, nil
	})
	if err != nil {
		return err
	}
	if !fresh {
		token = ""
	}
	if err := s.exchangeToken(ctx, old, token, tokenRecord{Kind: kindAdmin, Workspace: ws}); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, struct {
		Workspace berth.ID `json:"workspace"`
		Title     string   `json:"title,omitempty"`
		Token     string   `json:"admin_token,omitempty"`
	}{ws, rec.Title, token})
}
