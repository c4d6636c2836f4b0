package api

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
)

const (
	// cookieName has the prefix with which browsers take a cookie only from its
	// own host, over a secure connection (or *.localhost), for all paths: a
	// preview cannot plant one.
	cookieName  = "__Host-berth"
	sessionLife = 7 * 24 * time.Hour
)

// signIn takes a sign-in link: once, then the browser has the session's cookie
// and goes on to an address without the token.
func (s *Server) signIn(c echo.Context) error {
	r := c.Request()
	if strings.Contains(r.Header.Get("Sec-Purpose"), "prefetch") {
		return c.NoContent(http.StatusServiceUnavailable) // a browser that guesses must not use the link up
	}
	t, err := openTicket(s.o.Secret, forSignIn, r.URL.Query().Get("t"), s.o.Now())
	if err != nil {
		return s.signInFailed(c, http.StatusUnauthorized, err.Error())
	}
	cookie, err := s.startSession(r.Context(), t)
	switch {
	case errors.Is(err, errUnauthorized):
		return s.signInFailed(c, http.StatusUnauthorized, strings.TrimSuffix(err.Error(), ": "+errUnauthorized.Error()))
	case err != nil:
		status, body := answerTo(err)
		s.o.Logger.Warn("Cannot sign in", "err", err)
		return s.signInFailed(c, status, body.Message)
	}
	c.SetCookie(cookie)
	return c.Redirect(http.StatusSeeOther, "/")
}

// startSession uses the link up and returns the cookie of the session.
func (s *Server) startSession(ctx context.Context, t ticket) (*http.Cookie, error) {
	hold := s.cuts.hold(ctx)
	defer hold.release()
	p := principal{kind: kindMember, workspace: t.Workspace, user: t.User}
	if err := s.admit(ctx, p, "", time.UnixMilli(t.Issued), hold); err != nil {
		return nil, err
	}
	now := s.o.Now().UTC()
	_, err := update(ctx, s.records, signInKey(t.Nonce), func(rec *signInRecord) (signInRecord, error) {
		if rec != nil {
			return *rec, fmt.Errorf("it was used already: %w", errUnauthorized)
		}
		return signInRecord{Workspace: t.Workspace, User: t.User, Started: now, Expires: now.Add(sessionLife)}, nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.forgetSessions(ctx, now); err != nil {
		s.o.Logger.Warn("Cannot remove the records of old sign-ins", "err", err)
	}
	t.Issued, t.Expires = now.UnixMilli(), now.Add(sessionLife).Unix()
	return &http.Cookie{
		Name: cookieName, Value: signTicket(s.o.Secret, forSession, t), Path: "/", MaxAge: int(sessionLife.Seconds()),
		Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}, nil
}

// forgetSessions removes some records of sign-ins whose time is over.
func (s *Server) forgetSessions(ctx context.Context, now time.Time) error {
	recs, err := s.records.List(ctx, "signins/")
	if err != nil {
		return err
	}
	most := 20
	for _, rec := range recs {
		in, err := decodeRecord[signInRecord](rec)
		if err != nil {
			return err
		}
		if now.Before(in.Expires) || most == 0 {
			continue
		}
		most--
		if err := s.records.Delete(ctx, rec.Key, rec.Version); err != nil &&
			!errors.Is(err, fs.ErrNotExist) && !errors.Is(err, berth.ErrConflict) {
			return err
		}
	}
	return nil
}

const signInPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Berth: not signed in</title>
<h1>You are not signed in</h1>
<p>This sign-in link cannot be used: %s.</p>
<p>A link is good for one use within %d minutes. A new one is printed when Berth starts, and by
<code>POST /v1/signin-links</code> with your token.</p>
</html>
`

func (s *Server) signInFailed(c echo.Context, status int, why string) error {
	return c.HTML(status, fmt.Sprintf(signInPage, html.EscapeString(why), int(SignInLinkLife.Minutes())))
}

func (s *Server) byCookie(ctx context.Context, value string, hold *hold) (principal, error) {
	t, err := openTicket(s.o.Secret, forSession, value, s.o.Now())
	if err != nil {
		return principal{}, fmt.Errorf("the session's cookie is no good: %v: %w", err, errUnauthorized)
	}
	hold.under(sessionName(t.Nonce))
	in, _, err := read[signInRecord](ctx, s.records, signInKey(t.Nonce))
	if errors.Is(err, fs.ErrNotExist) || err == nil && (in.Ended || in.User != t.User || in.Workspace != t.Workspace) {
		return principal{}, fmt.Errorf("the session has ended: %w", errUnauthorized)
	} else if err != nil {
		return principal{}, err
	}
	p := principal{kind: kindMember, workspace: t.Workspace, user: t.User, session: t.Nonce}
	return p, s.admit(ctx, p, "", in.Started, hold)
}

// signOut ends the session that the request came with, and its streams.
func (s *Server) signOut(c echo.Context, m member) error {
	if m.session == "" {
		return fmt.Errorf("cannot sign out: the request has a token, not a session's cookie: %w", fs.ErrInvalid)
	}
	ctx := context.WithoutCancel(c.Request().Context())
	_, err := update(ctx, s.records, signInKey(m.session), func(in *signInRecord) (signInRecord, error) {
		if in == nil {
			return signInRecord{}, errUnchanged
		}
		in.Ended = true
		return *in, nil
	})
	if err != nil {
		return err
	}
	c.SetCookie(&http.Cookie{
		Name: cookieName, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	if err := c.NoContent(http.StatusNoContent); err != nil {
		return err
	}
	s.cuts.cut(sessionName(m.session), fmt.Errorf("the session has ended: %w", errUnauthorized))
	return nil
}

// createSignInLink answers a fresh link for the member itself.
func (s *Server) createSignInLink(c echo.Context, m member) error {
	r, now := c.Request(), s.o.Now()
	link := url.URL{
		Scheme: scheme(r), Host: s.o.PreviewHost, Path: "/signin",
		RawQuery: "t=" + MintSignIn(s.o.Secret, m.workspace, m.user, now),
	}
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		link.Host = net.JoinHostPort(s.o.PreviewHost, port)
	}
	return c.JSON(http.StatusCreated, map[string]any{"url": link.String(), "expires": now.Add(SignInLinkLife).UTC()})
}
