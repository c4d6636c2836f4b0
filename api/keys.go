package api

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
)

// maxKeys is how many keys a workspace may have, revoked ones counted.
const maxKeys = 1000

type keyAnswer struct {
	ID      berth.ID   `json:"id"`
	Label   string     `json:"label,omitempty"`
	Created time.Time  `json:"created"`
	Revoked *time.Time `json:"revoked,omitempty"`
	Key     string     `json:"key,omitempty"` // only in the answer that makes it
}

func (k keyRecord) answer() keyAnswer {
	return keyAnswer{ID: k.ID, Label: k.Label, Created: k.Created, Revoked: k.Revoked}
}

// createKey makes an API key and answers it, once.
func (s *Server) createKey(c echo.Context, a admin) error {
	body, err := decodeBody[struct {
		Label string `json:"label"`
	}](c)
	if err != nil {
		return err
	}
	if err := checkTitle("label", body.Label); err != nil {
		return err
	}
	ctx := c.Request().Context()
	keys, err := s.records.List(ctx, keyKey(a.workspace, ""))
	if err != nil {
		return err
	}
	if len(keys) >= maxKeys {
		return fmt.Errorf("cannot make key: the workspace has %d keys already: %w", len(keys), fs.ErrInvalid)
	}
	token := NewAPIKey()
	rec := keyRecord{
		Workspace: a.workspace, ID: berth.ID("k" + strings.ToLower(rand.Text()[:12])),
		Label: body.Label, Created: s.o.Now().UTC(), Token: HashToken(token),
	}
	if err := s.addKey(ctx, rec); err != nil {
		return err
	}
	answer := rec.answer()
	answer.Key = token
	return c.JSON(http.StatusCreated, answer)
}

// addKey makes the records of a key.
func (s *Server) addKey(ctx context.Context, rec keyRecord) error {
	_, err := update(ctx, s.records, keyKey(rec.Workspace, rec.ID), func(*keyRecord) (keyRecord, error) { return rec, nil })
	if err != nil {
		return err
	}
	return s.addToken(ctx, rec.Token, tokenRecord{Kind: kindKey, Workspace: rec.Workspace, Key: rec.ID})
}

func (s *Server) listKeys(c echo.Context, a admin) error {
	recs, err := list[keyRecord](c.Request().Context(), s.records, keyKey(a.workspace, ""))
	if err != nil {
		return err
	}
	keys := make([]keyAnswer, len(recs))
	for i, k := range recs {
		keys[i] = k.answer()
	}
	return c.JSON(http.StatusOK, map[string]any{"keys": keys})
}

// revokeKey takes a key's access away at once, ends its streams and stops the
// machines of its chats. It destroys no files.
func (s *Server) revokeKey(c echo.Context, a admin) error {
	id, err := idParam(c, "id", "key")
	if err != nil {
		return err
	}
	ctx := context.WithoutCancel(c.Request().Context()) // a revocation is not left half done
	now := s.o.Now().UTC()
	rec, err := update(ctx, s.records, keyKey(a.workspace, id), func(k *keyRecord) (keyRecord, error) {
		switch {
		case k == nil:
			return keyRecord{}, notFound("key", string(id))
		case k.Revoked != nil:
			return *k, errUnchanged // again, to finish what did not succeed
		}
		k.Revoked = &now
		return *k, nil
	})
	if err != nil {
		return err
	}
	s.cuts.cut(keyName(a.workspace, id), errRevoked)
	if err := s.revokeToken(ctx, rec.Token); err != nil {
		return err
	}
	all, err := list[chatRecord](ctx, s.records, chatPrefix(a.workspace, principal{kind: kindKey}))
	if err != nil {
		return err
	}
	var chats []chatRecord
	for _, chat := range all {
		if chat.Key == id {
			chats = append(chats, chat)
		}
	}
	if err := s.stopMachines(ctx, a.workspace, chats); err != nil {
		return fmt.Errorf("key %q has no access any more, but: %w", id, err)
	}
	return c.NoContent(http.StatusNoContent)
}
