package mounts

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"berth"
)

func (s *Server) checkpoint(ctx context.Context, q treesMessage) (checkpointMessage, error) {
	trees, err := parseTrees(q.Trees)
	if err != nil {
		return checkpointMessage{}, err
	}
	n, err := s.FileSystem.Checkpoint(ctx, trees)
	return checkpointMessage{n}, err
}

func (s *Server) since(ctx context.Context, q sinceMessage) (pathChangesMessage, error) {
	t, err := parseTree(q.Tree)
	if err != nil {
		return pathChangesMessage{}, err
	}
	changes, more, err := s.FileSystem.ChangesSince(ctx, t, q.Checkpoint)
	return pathChangesMessage{changes, more}, err
}

func (s *Server) versions(ctx context.Context, q pathMessage) (versionsMessage, error) {
	t, err := parsePlace(q.Tree, q.Path)
	if err != nil {
		return versionsMessage{}, err
	}
	versions, err := s.FileSystem.Versions(ctx, t, q.Path)
	return versionsMessage{versions}, err
}

func (s *Server) restore(ctx context.Context, q pathVersionMessage) (noneMessage, error) {
	t, err := parsePlace(q.Tree, q.Path)
	if err == nil {
		err = s.FileSystem.Restore(ctx, t, q.Path, q.Version)
	}
	return noneMessage{}, err
}

func (s *Server) deleted(ctx context.Context, q pathMessage) (deletedMessage, error) {
	t, err := parseTree(q.Tree)
	if err == nil && q.Path != "" {
		err = checkPath(q.Path)
	}
	if err != nil {
		return deletedMessage{}, err
	}
	files, more, err := s.FileSystem.Deleted(ctx, t, q.Path)
	return deletedMessage{files, more}, err
}

// before sends the content of a file as it was at a checkpoint.
func (s *Server) before(w http.ResponseWriter, r *http.Request) error {
	var q beforeMessage
	if err := s.request(w, r, &q); err != nil {
		return err
	}
	t, err := parsePlace(q.Tree, q.Path)
	if err != nil {
		return err
	}
	body, size, err := s.FileSystem.Before(r.Context(), t, q.Path, q.Checkpoint)
	if err != nil {
		return err
	}
	s.sendContent(w, r, body, size)
	return nil
}

// version sends a version of a file.
func (s *Server) version(w http.ResponseWriter, r *http.Request) error {
	var q pathVersionMessage
	if err := s.request(w, r, &q); err != nil {
		return err
	}
	t, err := parsePlace(q.Tree, q.Path)
	if err != nil {
		return err
	}
	body, size, err := s.FileSystem.OpenVersion(r.Context(), t, q.Path, q.Version)
	if err != nil {
		return err
	}
	s.sendContent(w, r, body, size)
	return nil
}

// sendContent sends a body of known size and closes it.
func (s *Server) sendContent(w http.ResponseWriter, r *http.Request, body io.ReadCloser, size int64) {
	defer body.Close()
	out := slowWriter{w, http.NewResponseController(w)}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	if _, err := io.CopyN(out, body, size); err != nil && r.Context().Err() == nil {
		// The length announced tells the reader that there should have been more.
		s.Logger.Warn("Cannot send an earlier content", "cause", err)
	}
}

// A slowWriter gives the reader time for each piece, not for the whole.
type slowWriter struct {
	w       io.Writer
	control *http.ResponseController
}

func (w slowWriter) Write(p []byte) (int, error) {
	w.control.SetWriteDeadline(time.Now().Add(writeTime))
	return w.w.Write(p)
}

// parseTree parses the name of a tree; "" is the whole bucket.
func parseTree(name string) (berth.Tree, error) {
	if name == "" {
		return berth.Tree{}, nil
	}
	return berth.ParseTree(name)
}

// parsePlace parses the name of a tree and checks a path in it.
func parsePlace(tree, path string) (berth.Tree, error) {
	t, err := parseTree(tree)
	if err == nil {
		err = checkPath(path)
	}
	return t, err
}
