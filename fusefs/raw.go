package fusefs

import "github.com/hanwen/go-fuse/v2/fuse"

// A rawFS is the kernel's side of an FS: one method for each request, in the
// files named for them. Embedded is the refusal of what is not served: locks
// (the kernel keeps them), ioctl, statx (the kernel falls back to getattr).
type rawFS struct {
	fuse.RawFileSystem
	fs *FS
}

var _ fuse.RawFileSystem = (*rawFS)(nil)

// String names the file system in go-fuse's messages.
func (r *rawFS) String() string { return "berth" }
