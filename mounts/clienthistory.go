package mounts

import (
	"context"
	"io"

	"berth"
)

// Checkpoint pins the contents of the trees' files and returns its number.
func (c *Client) Checkpoint(ctx context.Context, trees []berth.Tree) (uint64, error) {
	names := make([]string, len(trees))
	for i, t := range trees {
		names[i] = treeName(t)
	}
	var a checkpointMessage
	err := c.do(ctx, pathCheckpoint, treesMessage{names}, &a)
	return a.Checkpoint, err
}

// Before returns what a file held at a checkpoint and its size. A file that did
// not exist then is fs.ErrNotExist. ctx must live until the reader is closed.
func (c *Client) Before(ctx context.Context, t berth.Tree, path string, checkpoint uint64) (io.ReadCloser, int64, error) {
	resp, err := c.post(ctx, pathBefore, beforeMessage{treeName(t), path, checkpoint})
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, resp.ContentLength, nil
}

// ChangesSince lists what changed in a tree since a checkpoint, by path; more says
// that there is more. A checkpoint of which nobody knows any more is ErrNotKept.
func (c *Client) ChangesSince(ctx context.Context, t berth.Tree, checkpoint uint64) (changes []berth.PathChange, more bool, err error) {
	var a pathChangesMessage
	err = c.do(ctx, pathSince, sinceMessage{treeName(t), checkpoint}, &a)
	return a.Changes, a.More, err
}

// Versions lists the earlier contents of a path that are kept, the latest first.
// In what follows the zero Tree is the whole bucket of a `berth mount`.
func (c *Client) Versions(ctx context.Context, t berth.Tree, path string) ([]berth.Version, error) {
	var a versionsMessage
	err := c.do(ctx, pathVersions, pathMessage{treeName(t), path}, &a)
	return a.Versions, err
}

// OpenVersion opens a version of a path and tells its size. ctx must live until
// the reader is closed.
func (c *Client) OpenVersion(ctx context.Context, t berth.Tree, path, id string) (io.ReadCloser, int64, error) {
	resp, err := c.post(ctx, pathVersion, pathVersionMessage{treeName(t), path, id})
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, resp.ContentLength, nil
}

// Restore writes a version of a path to the path again.
func (c *Client) Restore(ctx context.Context, t berth.Tree, path, id string) error {
	return c.do(ctx, pathRestore, pathVersionMessage{treeName(t), path, id}, &noneMessage{})
}

// Deleted lists the files that were deleted below a directory, "" being the tree's
// root, with their last versions; more says that there may be more.
func (c *Client) Deleted(ctx context.Context, t berth.Tree, dir string) (files []berth.DeletedFile, more bool, err error) {
	var a deletedMessage
	err = c.do(ctx, pathDeleted, pathMessage{treeName(t), dir}, &a)
	return a.Files, a.More, err
}

// treeName is Tree.String, "" for the whole bucket.
func treeName(t berth.Tree) string {
	if t == (berth.Tree{}) {
		return ""
	}
	return t.String()
}
