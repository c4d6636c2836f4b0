package api

import (
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
)

// pastOf returns the handler for what a GET of a file asks of its past, nil if
// that is nothing.
func (s *Server) pastOf(c echo.Context) func(echo.Context, place) error {
	switch {
	case c.QueryParam("version") != "":
		return s.sendVersion
	case c.QueryParam("versions") == "1":
		return s.listVersions
	case c.QueryParam("deleted") == "1":
		return s.listDeleted
	}
	return nil
}

// inTree returns the path of a place in its tree, "" for the root, once the tree
// is known to mountd. A file needs a name.
func (s *Server) inTree(c echo.Context, at place, file bool) (string, error) {
	full := at.full()
	if full == "." {
		full = ""
	}
	if file && (at.dir || at.path == "") {
		return "", fmt.Errorf("cannot look at versions of %v: it names a directory: %w", at, fs.ErrInvalid)
	}
	return full, s.o.Trees.AttachTree(c.Request().Context(), at.tree)
}

func (s *Server) listVersions(c echo.Context, at place) error {
	full, err := s.inTree(c, at, true)
	if err != nil {
		return err
	}
	versions, err := s.o.Trees.Versions(c.Request().Context(), at.tree, full)
	if err != nil {
		return fileError("list versions of", at, err)
	}
	if versions == nil {
		versions = []berth.Version{}
	}
	return c.JSON(http.StatusOK, map[string]any{"versions": versions})
}

func (s *Server) listDeleted(c echo.Context, at place) error {
	full, err := s.inTree(c, at, false)
	if err != nil {
		return err
	}
	files, more, err := s.o.Trees.Deleted(c.Request().Context(), at.tree, full)
	if err != nil {
		return fileError("list deleted files of", at, err)
	}
	if files == nil {
		files = []berth.DeletedFile{}
	}
	return c.JSON(http.StatusOK, map[string]any{"files": files, "more": more})
}

// sendVersion sends a version of a file, always as an attachment: what it was may
// be of any kind.
func (s *Server) sendVersion(c echo.Context, at place) error {
	full, err := s.inTree(c, at, true)
	if err != nil {
		return err
	}
	body, size, err := s.o.Trees.OpenVersion(c.Request().Context(), at.tree, full, c.QueryParam("version"))
	if err != nil {
		return fileError("read version of", at, err)
	}
	defer body.Close()
	h := c.Response().Header()
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{
		"filename": strings.ToValidUTF8(path.Base(at.path), "_")}))
	h.Set("Cache-Control", "private, no-cache")
	c.Response().WriteHeader(http.StatusOK)
	if c.Request().Method == http.MethodHead {
		return nil
	}
	// The length that was announced tells the client of a body that broke off.
	_, err = io.CopyN(pieceWriter{c.Response(), s.o.TransferTime}, body, size)
	if err != nil && c.Request().Context().Err() == nil {
		s.o.Logger.Debug("Cannot send a version to its end", "tree", at.tree.String(), "path", full, "cause", err)
	}
	return nil
}

// A pieceWriter gives the client time for each piece.
type pieceWriter struct {
	w    http.ResponseWriter
	time time.Duration
}

func (p pieceWriter) Write(b []byte) (int, error) {
	// A deadline is only refused by a writer that has none, in tests.
	_ = http.NewResponseController(p.w).SetWriteDeadline(time.Now().Add(p.time))
	return p.w.Write(b)
}

// restoreFile gives a path the content of one of its versions again.
func (s *Server) restoreFile(c echo.Context, at place, id string) error {
	full, err := s.inTree(c, at, true)
	if err != nil {
		return err
	}
	if err := s.o.Trees.Restore(c.Request().Context(), at.tree, full, id); err != nil {
		return fileError("restore", at, err)
	}
	return c.JSON(http.StatusOK, struct{}{})
}

type changesAnswer struct {
	Call       berth.ID           `json:"call,omitempty"` // the tool call since which it is
	Checkpoint uint64             `json:"checkpoint"`
	Changes    []berth.PathChange `json:"changes"`
	More       bool               `json:"more"`
}

// getChanges lists what changed in a tree since a tool call, as getDiff takes it.
func (s *Server) getChanges(c echo.Context, p owner) error {
	ctx := c.Request().Context()
	tree, err := s.treeOf(ctx, p, c.QueryParam("tree"))
	if err != nil {
		return err
	}
	answer := changesAnswer{}
	if answer.Checkpoint, answer.Call, err = s.baseline(c, tree); err != nil {
		return err
	}
	answer.Changes, answer.More, err = s.o.Trees.ChangesSince(ctx, tree, answer.Checkpoint)
	if err != nil {
		return err
	}
	if answer.Changes == nil {
		answer.Changes = []berth.PathChange{}
	}
	return c.JSON(http.StatusOK, answer)
}
