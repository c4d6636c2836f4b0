package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"berth"
)

// A Bootstrap names what a first start makes, with the SHA-256 (HashToken) of
// the tokens that give access to it.
type Bootstrap struct {
	Workspace berth.ID `json:"workspace"`
	User      berth.ID `json:"user"`
	Operator  string   `json:"operator_sha256"`
	Admin     string   `json:"admin_sha256"`
	Member    string   `json:"member_sha256"`
	Key       string   `json:"key_sha256"`
	KeyID     berth.ID `json:"key_id"`
}

// Bootstrap makes the operator, the workspace, the member and the key, each
// unless its token was known before: what was rotated, revoked or removed since
// stays so. A new token for a workspace or member that exists replaces the old.
func (s *Server) Bootstrap(ctx context.Context, b Bootstrap) error {
	if err := s.bootstrap(ctx, b); err != nil {
		return fmt.Errorf("cannot prepare workspace %q: %w", b.Workspace, err)
	}
	return nil
}

func (s *Server) bootstrap(ctx context.Context, b Bootstrap) error {
	now := s.o.Now().UTC()
	steps := []struct {
		hash  string
		apply func(hash string) (old string, err error) // makes what the token is for
		token tokenRecord
	}{
		{b.Operator, func(string) (string, error) { return "", nil }, tokenRecord{Kind: kindOperator}},
		{b.Admin, func(hash string) (old string, err error) {
			_, err = update(ctx, s.records, workspaceKey(b.Workspace), func(w *workspaceRecord) (workspaceRecord, error) {
				next := workspaceRecord{Workspace: b.Workspace, Created: now}
				if w != nil {
					next, old = *w, w.Token
				}
				next.Token = hash
				return next, nil
			})
			return old, err
		}, tokenRecord{Kind: kindAdmin, Workspace: b.Workspace}},
		{b.Member, func(hash string) (old string, err error) {
			_, err = update(ctx, s.records, memberKey(b.Workspace, b.User), func(m *memberRecord) (memberRecord, error) {
				next := memberRecord{Workspace: b.Workspace, User: b.User, Created: now}
				if m != nil {
					next, old = *m, m.Token
				}
				next.Token = hash
				return next, nil
			})
			return old, err
		}, tokenRecord{Kind: kindMember, Workspace: b.Workspace, User: b.User}},
	}
	for _, step := range steps {
		if known, err := s.known(ctx, step.hash); err != nil || known {
			if err != nil {
				return err
			}
			continue
		}
		old, err := step.apply(step.hash)
		if err != nil {
			return err
		}
		if err := s.addToken(ctx, step.hash, step.token); err != nil {
			return err
		}
		if old != "" && old != step.hash {
			if err := s.revokeToken(ctx, old); err != nil {
				return err
			}
		}
	}
	if known, err := s.known(ctx, b.Key); err != nil || known {
		return err
	}
	return s.addKey(ctx, keyRecord{
		Workspace: b.Workspace, ID: b.KeyID, Label: "made at the first start", Created: now, Token: b.Key,
	})
}

// known reports whether there is a record of a token, whatever it says.
func (s *Server) known(ctx context.Context, hash string) (bool, error) {
	if len(hash) != 64 {
		return false, fmt.Errorf("the hash of a token has %d characters instead of 64: %w", len(hash), fs.ErrInvalid)
	}
	_, err := s.records.Get(ctx, tokenKey(hash))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
