package mounts

import (
	"context"
	"io"

	"berth"
	"berth/fusefs"
)

// A FileSystem is the one that is mounted at Host.FSDir. It can be used from many
// goroutines. FUSE makes one of the real file system; its errors are passed on.
type FileSystem interface {
	Trees
	History
	Feed
}

// Trees is what a Host needs of the file system that it mounts, and what the
// server offers of its trees.
type Trees interface {
	// AttachTree makes the tree appear at its place, with the directories below
	// its root that something is mounted on. It can be repeated.
	AttachTree(ctx context.Context, t berth.Tree, mountPoints ...string) error
	// RemoveTree removes every object and cached file of the tree.
	RemoveTree(ctx context.Context, t berth.Tree) error
	// Flush returns when all that was written below the prefix before the call
	// is in the bucket; "" is everything.
	Flush(ctx context.Context, prefix string) error
}

// History is what the file system knows of earlier contents. The zero Tree is the
// whole bucket, where that is mounted.
type History interface {
	// Checkpoint pins the contents of the trees' files and returns its number.
	Checkpoint(ctx context.Context, trees []berth.Tree) (uint64, error)
	// Before returns what a file held at a checkpoint and its size. A file that
	// did not exist then is fs.ErrNotExist; one of which nobody knows any more is
	// ErrNotKept.
	Before(ctx context.Context, t berth.Tree, path string, checkpoint uint64) (io.ReadCloser, int64, error)
	// ChangesSince lists what changed since a checkpoint, by path; more says that
	// there is more. A checkpoint of which nobody knows any more is ErrNotKept.
	ChangesSince(ctx context.Context, t berth.Tree, checkpoint uint64) (changes []berth.PathChange, more bool, err error)
	// Versions lists the earlier contents of a path that are kept, the latest
	// first, and OpenVersion opens one of them and tells its size. Restore writes
	// it to the path again.
	Versions(ctx context.Context, t berth.Tree, path string) ([]berth.Version, error)
	OpenVersion(ctx context.Context, t berth.Tree, path, id string) (io.ReadCloser, int64, error)
	Restore(ctx context.Context, t berth.Tree, path, id string) error
	// Deleted lists the files that were deleted below a directory, "" being the
	// tree's root, with their last versions; more says that there may be more.
	Deleted(ctx context.Context, t berth.Tree, dir string) (files []berth.DeletedFile, more bool, err error)
}

// Feed is what the file system tells about itself.
type Feed interface {
	// Changes returns the changes behind a sequence number; fusefs.FromNow is the
	// latest.
	Changes(since uint64) Subscription
	// Status is what to show of the file system, for JSON.
	Status() any
}

// A Subscription delivers changes in order. It is used by one goroutine and
// needs no end.
type Subscription interface {
	// Epoch names the run of the sequence numbers.
	Epoch() string
	// Next waits for changes, of which it returns at least one. ErrReset says that
	// some are lost.
	Next(ctx context.Context) ([]berth.Change, error)
}

// ErrReset says that a reader of changes has missed some: what it knows must be
// read again.
var ErrReset = fusefs.ErrReset

// ErrNotKept says that the content a file had at a checkpoint is not kept.
var ErrNotKept = fusefs.ErrNotKept

// FUSE makes a FileSystem of the real one.
func FUSE(f *fusefs.FS) FileSystem { return fuseFS{f} }

type fuseFS struct{ *fusefs.FS }

func (f fuseFS) Changes(since uint64) Subscription { return f.FS.Changes(since) }

func (f fuseFS) Status() any { return f.FS.Status() }
