package berth

import "time"

// A ChangeOp says what happened to a path.
type ChangeOp string

// The operations of a change.
const (
	OpCreate ChangeOp = "create" // the path is new
	OpWrite  ChangeOp = "write"  // new content, settled or snapshotted
	OpRemove ChangeOp = "remove"
	OpRename ChangeOp = "rename" // Path is the new name, From the old one
	OpAttr   ChangeOp = "attr"   // mode, times or xattrs
)

// PutPrefix begins the name of the temporary file through which berth itself
// writes a file as a whole. Nobody needs to see it.
const PutPrefix = ".berth-put-"

// A FileKind says what is at a path.
type FileKind string

// The kinds of file.
const (
	KindFile    FileKind = "file"
	KindDir     FileKind = "dir"
	KindSymlink FileKind = "symlink"
	KindOther   FileKind = "other" // a fifo or socket
)

// A Change is one committed change of a file. Changes are hints: what is true
// now is what a listing or a read says.
type Change struct {
	Seq     uint64    `json:"seq"`  // dense within an epoch of the feed
	Time    time.Time `json:"time"` // of the change itself: content is as old as its last write
	Tree    string    `json:"tree"` // Tree.String
	Path    string    `json:"path"` // below the tree's root, without slashes at the ends
	From    string    `json:"from,omitempty"`
	Op      ChangeOp  `json:"op"`
	Kind    FileKind  `json:"kind"`
	Size    int64     `json:"size"`
	Version string    `json:"version,omitempty"` // names the generation of the content
}
