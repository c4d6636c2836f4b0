package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"berth/fusefs/index"
)

// manyFiles is what statfs(2) shows where inodes have no limit.
const manyFiles = 1 << 32

// StatFs serves statfs(2): of a tree with a limit the limit and what is left of
// it, of others the cache's volume. What a workspace, or the volume, has left
// bounds what is available.
func (r *rawFS) StatFs(cancel <-chan struct{}, h *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	f := r.fs
	free, size, err := f.cache.Free()
	if err != nil {
		return f.statusOf("statfs", h.NodeId, err)
	}
	left, files, freeFiles := free, int64(manyFiles), int64(manyFiles)
	if n, err := f.inode(index.Ino(h.NodeId)); err == nil {
		total, limit, room := f.db.Usage(n.Tree)
		free = max(0, min(free, room.Bytes))
		left = free
		if limit.Bytes > 0 {
			size, left = limit.Bytes, max(0, limit.Bytes-total.Bytes)
		}
		if limit.Files > 0 {
			files, freeFiles = limit.Files, max(0, limit.Files-total.Files)
		}
		freeFiles = max(0, min(freeFiles, room.Files))
	}
	out.Bsize, out.Frsize, out.NameLen = blockSize, blockSize, maxName
	out.Blocks, out.Bfree, out.Bavail = uint64(size/blockSize), uint64(left/blockSize), uint64(free/blockSize)
	out.Files, out.Ffree = uint64(files), uint64(freeFiles)
	return fuse.OK
}
