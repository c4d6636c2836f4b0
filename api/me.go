package api

import (
	_ "embed"
	"net/http"

	"github.com/labstack/echo/v4"

	"berth"
)

//go:embed openapi.yaml
var openAPI []byte

func (s *Server) getOpenAPI(c echo.Context) error {
	return c.Blob(http.StatusOK, "application/yaml; charset=utf-8", openAPI)
}

// getHealth says that the gateway serves; it looks at nothing else.
func (s *Server) getHealth(c echo.Context) error {
	return c.JSON(http.StatusOK, map[string]bool{"ok": true})
}

// getMe tells who the token or cookie stands for.
func (s *Server) getMe(c echo.Context, p principal) error {
	c.Response().Header().Set(cursorHeader, s.o.Feed.Cursor())
	return c.JSON(http.StatusOK, struct {
		Kind        kind     `json:"kind"`
		Workspace   berth.ID `json:"workspace,omitempty"`
		User        berth.ID `json:"user,omitempty"`
		Key         berth.ID `json:"key_id,omitempty"`
		PreviewHost string   `json:"preview_host"`
		Sandboxes   bool     `json:"sandboxes"`
		Tools       []string `json:"tools"`
	}{p.kind, p.workspace, p.user, p.key, s.o.PreviewHost, s.o.Machines != nil, s.o.Tools})
}
