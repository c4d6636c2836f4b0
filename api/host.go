package api

import (
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/labstack/echo/v4"
)

// recovered turns a handler's panic into an internal error.
func (s *Server) recovered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if p := recover(); p == http.ErrAbortHandler {
				panic(p)
			} else if p != nil {
				err = fmt.Errorf("BUG: panic while answering %s: %v\n%s", c.Path(), p, debug.Stack())
			}
		}()
		return next(c)
	}
}

// keepEscapes lets the router see the path as it was sent, so that an escaped
// slash stays inside its segment. Parameters are therefore escaped, see param.
func keepEscapes(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		u := c.Request().URL
		u.RawPath = u.EscapedPath()
		return next(c)
	}
}

// secured sets the headers that every answer has. Handlers loosen what they must.
func secured(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		return next(c)
	}
}

// checkHost lets requests through that name a host of ours, so that no foreign
// name that was pointed at this address (DNS rebinding) becomes an origin here.
// Pages are only served on the preview host: under bare localhost the cookies
// of previews would be third-party ones.
func (s *Server) checkHost(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		host, port, err := net.SplitHostPort(r.Host)
		if err != nil {
			host, port = r.Host, ""
		}
		host = strings.ToLower(strings.Trim(host, "[]"))
		page := !strings.HasPrefix(r.URL.Path, "/v1/")
		switch {
		case host == s.o.PreviewHost:
			return next(c)
		case strings.HasSuffix(host, "."+s.o.PreviewHost):
			return notFound("preview", host)
		case host != "localhost" && net.ParseIP(host) == nil:
			return c.JSON(http.StatusMisdirectedRequest, problem{"invalid", fmt.Sprintf(
				"the host %.100q is not served here; the web app is at %s", host, s.o.PreviewHost)})
		case page && (r.Method == http.MethodGet || r.Method == http.MethodHead):
			to := url.URL{Scheme: scheme(r), Host: s.o.PreviewHost, Path: r.URL.Path, RawQuery: r.URL.RawQuery}
			if port != "" {
				to.Host = net.JoinHostPort(s.o.PreviewHost, port)
			}
			return c.Redirect(http.StatusTemporaryRedirect, to.String())
		}
		return next(c)
	}
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// checkOrigin refuses unsafe requests with a cookie that come from another
// origin: previews are on the same site, so SameSite does not hold them off.
func (s *Server) checkOrigin(r *http.Request) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	origin := r.Header.Get("Origin")
	switch {
	case origin == "" && r.Header.Get("Sec-Fetch-Site") == "same-origin":
		return nil
	case origin == scheme(r)+"://"+r.Host, origin == "https://"+r.Host: // TLS may end in front of us
		return nil
	}
	return fmt.Errorf("cannot %s with a cookie from origin %.100q, only from the app's own: %w", r.Method, origin, fs.ErrPermission)
}

// param returns a path parameter as it was meant, unescaped.
func param(c echo.Context, name string) (string, error) {
	v, err := url.PathUnescape(c.Param(name))
	if err != nil {
		return "", fmt.Errorf("cannot parse %s %.140q: %v: %w", name, c.Param(name), err, fs.ErrInvalid)
	}
	return v, nil
}
