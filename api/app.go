package api

import (
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"
)

// appPolicy lets the app run its own files and nothing else, show images that
// it made, and frame previews.
const appPolicy = "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; " +
	"font-src 'self' data:; connect-src 'self'; frame-src %s; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"

// serveApp serves the web app. Addresses that are no file are the app's own and
// get its page; it shows them itself.
func (s *Server) serveApp(c echo.Context) error {
	r := c.Request()
	name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
	if name == "v1" || strings.HasPrefix(name, "v1/") {
		return echo.ErrNotFound
	}
	h := c.Response().Header()
	h.Set("Content-Security-Policy", fmt.Sprintf(appPolicy, s.previewOrigins(r)))
	info, err := fs.Stat(s.o.App, or(name, "."))
	switch {
	case err == nil && info.Mode().IsRegular() && strings.HasPrefix(name, "assets/"):
		h.Set("Cache-Control", "public, max-age=31536000, immutable") // the names hold hashes
	case err == nil && info.Mode().IsRegular():
		h.Set("Cache-Control", "no-cache")
	case path.Ext(name) != "" && !strings.HasPrefix(name, "files/") || !strings.Contains(r.Header.Get("Accept"), "text/html") && name != "":
		return notFound("page", "/"+name)
	default:
		name = "index.html"
		h.Set("Cache-Control", "no-cache")
	}
	if name == "index.html" { // ServeFileFS would redirect it
		page, err := fs.ReadFile(s.o.App, name)
		if err != nil {
			return fmt.Errorf("the web app is not part of this build (make build makes it): %w", fs.ErrNotExist)
		}
		return c.HTMLBlob(http.StatusOK, page)
	}
	http.ServeFileFS(c.Response(), r, s.o.App, name)
	return nil
}

// previewOrigins names the origins of previews for a policy.
func (s *Server) previewOrigins(r *http.Request) string {
	host := "*." + s.o.PreviewHost
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		host = net.JoinHostPort(host, port)
	}
	return scheme(r) + "://" + host
}
