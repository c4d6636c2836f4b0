package berth

import (
	"errors"
	"time"
)

// ErrNotKept says that something had other content at a checkpoint, and that it is
// not kept: it was too large to copy, or the checkpoint is too old.
var ErrNotKept = errors.New("the earlier content is not kept")

// A VersionEnd says how a version of a file came to be an earlier one.
type VersionEnd string

// How versions end.
const (
	EndOverwritten VersionEnd = "overwritten"
	EndDeleted     VersionEnd = "deleted"
	EndLost        VersionEnd = "lost" // against a later write of the same file elsewhere
)

// A Version is an earlier content of a path that the history keeps.
type Version struct {
	ID    string     `json:"id"`   // names it among those of its path
	Time  time.Time  `json:"time"` // when it was written
	Size  int64      `json:"size"`
	Ended time.Time  `json:"ended,omitzero"` // when it was kept
	End   VersionEnd `json:"end"`
}

// A DeletedFile is a path that has nothing now and had a file, with the last
// version of that.
type DeletedFile struct {
	Path    string  `json:"path"` // below the tree's root
	Version Version `json:"version"`
}

// A PathChangeKind says what became of a path since a checkpoint.
type PathChangeKind string

// The kinds of change of a path.
const (
	PathCreated  PathChangeKind = "created"
	PathModified PathChangeKind = "modified" // written to or replaced
	PathDeleted  PathChangeKind = "deleted"
	PathRenamed  PathChangeKind = "renamed" // from a path that it had; a directory with all that is in it
)

// A PathChange is the difference of one path between a checkpoint and now.
type PathChange struct {
	Path string         `json:"path"` // below the tree's root; of a deleted one as it was
	From string         `json:"from,omitempty"`
	Kind PathChangeKind `json:"kind"`
	File FileKind       `json:"file"`
	Old  *Generation    `json:"old,omitempty"` // of a file that was there
	New  *Generation    `json:"new,omitempty"` // of a file that is there
}

// A Generation is one content of a file. Two with the same Version are the same.
type Generation struct {
	Version string    `json:"version"`
	Size    int64     `json:"size"`
	Time    time.Time `json:"time"` // of its last change
}
