package berth

import "time"

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
