package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/preview"
)

type diffAnswer struct {
	preview.Diff
	Call       berth.ID `json:"call,omitempty"` // the tool call that the diff is against
	Checkpoint uint64   `json:"checkpoint"`
	// BeforeExists and AfterExists tell a new file from one that was empty.
	BeforeExists bool `json:"before_exists"`
	AfterExists  bool `json:"after_exists"`
}

// getDiff compares a file with what it was before a tool call: the given one or
// the latest whose machine sees the tree; or with what it was at a checkpoint.
func (s *Server) getDiff(c echo.Context, p owner) error {
	ctx := c.Request().Context()
	tree, err := s.treeOf(ctx, p, c.QueryParam("tree"))
	if err != nil {
		return err
	}
	rel, dir, err := parsePath(c.QueryParam("path"), false)
	if err != nil {
		return err
	}
	if dir {
		return fmt.Errorf("cannot compare %.140q: it names a directory: %w", c.QueryParam("path"), fs.ErrInvalid)
	}
	at := place{tree: tree, path: rel}
	answer := diffAnswer{}
	if answer.Checkpoint, answer.Call, err = s.baseline(c, tree); err != nil {
		return err
	}
	before, existed, err := s.before(ctx, at, answer.Checkpoint)
	if err != nil {
		return fmt.Errorf("cannot compare %v: %w", at, err)
	}
	after, exists, err := s.after(ctx, at)
	if err != nil {
		return fmt.Errorf("cannot compare %v: %w", at, err)
	}
	if !existed && !exists {
		return notFound("file", rel)
	}
	answer.BeforeExists, answer.AfterExists = existed, exists
	if answer.Diff, err = preview.DiffText(ctx, before, after); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, answer)
}

// baseline returns the checkpoint that the request names, and its call if known.
func (s *Server) baseline(c echo.Context, tree berth.Tree) (uint64, berth.ID, error) {
	if v := c.QueryParam("checkpoint"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil || n == 0 {
			return 0, "", fmt.Errorf("invalid checkpoint %.40q: it is not a number from 1 on: %w", v, fs.ErrInvalid)
		}
		return n, "", nil
	}
	call := c.QueryParam("call")
	if call != "" {
		if _, err := berth.ParseID("call", call); err != nil {
			return 0, "", err
		}
	}
	base, ok := s.o.Feed.Baseline(berth.ID(call), tree)
	if !ok {
		return 0, "", notFound("tool call to compare with", call)
	}
	return base.Checkpoint, base.ID, nil
}

// before returns the content at a checkpoint, and whether there was a file.
func (s *Server) before(ctx context.Context, at place, checkpoint uint64) ([]byte, bool, error) {
	r, _, err := s.o.Trees.Before(ctx, at.tree, at.path, checkpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	defer r.Close()
	content, err := readForDiff(r)
	return content, true, err
}

// after returns the present content, and whether there is a file.
func (s *Server) after(ctx context.Context, at place) ([]byte, bool, error) {
	o, err := s.open(ctx, at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	defer o.close()
	if o.info.IsDir() {
		return nil, false, fmt.Errorf("it is a directory: %w", fs.ErrInvalid)
	}
	content, err := within(ctx, s, func() ([]byte, error) { return readForDiff(o.file) }, nil)
	return content, true, err
}

// readForDiff reads up to one byte more than can be compared.
func readForDiff(r io.Reader) ([]byte, error) {
	var content bytes.Buffer
	_, err := io.Copy(&content, io.LimitReader(r, preview.MaxDiffBytes+1))
	return content.Bytes(), err
}
