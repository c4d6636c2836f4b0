package api

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
)

// A principal is who a request comes from. Its fields are set as its kind needs.
type principal struct {
	kind      kind
	workspace berth.ID // all but operators
	user      berth.ID // members
	key       berth.ID // API keys
	session   berth.ID // the sign-in's nonce, if it came with a cookie
}

// name is what the principal's requests are registered under for cutting.
func (p principal) name() string {
	switch p.kind {
	case kindMember:
		return memberName(p.workspace, p.user)
	case kindKey:
		return keyName(p.workspace, p.key)
	}
	return string(p.kind + " " + kind(p.workspace))
}

func memberName(workspace, user berth.ID) string { return fmt.Sprintf("member %s/%s", workspace, user) }
func keyName(workspace, key berth.ID) string     { return fmt.Sprintf("key %s/%s", workspace, key) }
func sessionName(nonce berth.ID) string          { return "session " + string(nonce) }
func tokenName(hash string) string               { return "token " + hash }

// as returns a handler that serves only principals of the given kinds. The
// request runs under a context that ends when the principal is revoked.
func (s *Server) as(serve func(echo.Context, principal) error, kinds ...kind) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		hold := s.cuts.hold(r.Context())
		defer hold.release()
		c.SetRequest(r.WithContext(hold.ctx))
		p, err := s.identify(c.Request(), hold)
		if err != nil {
			return err
		}
		if s.cuts.crowded(p.name(), maxRequests) {
			return fmt.Errorf("cannot take another request, %d are under way: %w", maxRequests, ErrLimit)
		}
		if p.session != "" {
			if err := s.checkOrigin(r); err != nil {
				return err
			}
		}
		for _, k := range kinds {
			if p.kind == k {
				return serve(c, p)
			}
		}
		return fmt.Errorf("cannot do this as %s, it takes %s: %w", p.kind, strings.Trim(fmt.Sprint(kinds), "[]"), fs.ErrPermission)
	}
}

// identify finds the principal of a request. It registers what could be revoked
// before it reads the record that says whether it was, so that no revocation
// slips between the two.
func (s *Server) identify(r *http.Request, hold *hold) (principal, error) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return principal{}, fmt.Errorf("the Authorization header must be \"Bearer TOKEN\": %w", errUnauthorized)
		}
		return s.byToken(r.Context(), strings.TrimSpace(token), hold)
	}
	if cookie, err := r.Cookie(cookieName); err == nil {
		return s.byCookie(r.Context(), cookie.Value, hold)
	}
	return principal{}, fmt.Errorf("a token is needed, as header \"Authorization: Bearer TOKEN\": %w", errUnauthorized)
}

func (s *Server) byToken(ctx context.Context, token string, hold *hold) (principal, error) {
	if _, ok := tokenKind(token); !ok {
		return principal{}, fmt.Errorf("the token has not the form of one of berth's: %w", errUnauthorized)
	}
	hash := HashToken(token)
	hold.under(tokenName(hash))
	rec, err := s.records.Get(ctx, tokenKey(hash))
	if errors.Is(err, fs.ErrNotExist) {
		return principal{}, fmt.Errorf("the token is not known: %w", errUnauthorized)
	} else if err != nil {
		return principal{}, err
	}
	if subtle.ConstantTimeCompare([]byte(rec.Key), []byte(tokenKey(hash))) != 1 {
		return principal{}, fmt.Errorf("the token is not known: %w", errUnauthorized)
	}
	t, err := decodeRecord[tokenRecord](rec)
	if err != nil {
		return principal{}, err
	}
	if t.Revoked {
		return principal{}, errRevoked
	}
	p := principal{kind: t.Kind, workspace: t.Workspace, user: t.User, key: t.Key}
	return p, s.admit(ctx, p, hash, time.Time{}, hold)
}

// admit checks that what the principal stands for has access. Its record names
// the one token that is good, by hash: an exchange of tokens that was broken off
// leaves no second one. A sign-in, which has no hash, must be younger than the
// member's last removal.
func (s *Server) admit(ctx context.Context, p principal, hash string, signedIn time.Time, hold *hold) error {
	hold.under(p.name())
	var good bool
	var err error
	switch p.kind {
	case kindOperator:
		good = true
	case kindAdmin:
		var w workspaceRecord
		w, _, err = read[workspaceRecord](ctx, s.records, workspaceKey(p.workspace))
		good = w.Token == hash
	case kindMember:
		var m memberRecord
		m, _, err = read[memberRecord](ctx, s.records, memberKey(p.workspace, p.user))
		good = m.Removed == nil && m.Token == hash
		if hash == "" {
			good = m.Removed == nil && signedIn.After(m.SignInsAfter)
		}
	case kindKey:
		var k keyRecord
		k, _, err = read[keyRecord](ctx, s.records, keyKey(p.workspace, p.key))
		good = k.Revoked == nil && k.Token == hash
	default:
		return fmt.Errorf("the token's record has the unknown kind %q", p.kind)
	}
	if err == nil && !good || errors.Is(err, fs.ErrNotExist) {
		return errRevoked
	}
	return err
}
