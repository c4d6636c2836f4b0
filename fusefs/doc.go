// Package fusefs projects a bucket of plain objects as an ordinary directory at
// the speed of a local disk. It is the only importer of go-fuse.
//
// Terms. The index (package index) is the namespace; the cache (package cache)
// holds content; sync (package sync) makes the bucket follow and brings in what
// others changed there. An inode's number is the kernel's nodeid too, so nothing
// is kept in memory for an inode that is merely known. A file is open for
// writing from the first writable open until it has settled: no writable
// descriptor or mapping of its content file is left in the system. A synthetic
// node is a directory that only this process knows: the way to a tree and the
// places inside a tree that something is mounted on.
//
// Model. An operation that changes names or attributes is one batch of the index,
// in the kernel's hands before the answer. Content is read and written by the
// kernel itself where passthrough is possible (kernel 6.9, the cache not on
// overlayfs), else through this process, with the same meaning; one inode keeps
// one of the two ways while it is open. A large file that is only in the bucket goes
// through this process, piece by piece, until nobody has it open. Nothing waits for the store but what
// needs bytes or names that are not here yet.
//
// Guarantees. When close(2) returns, the death of this process loses nothing of
// what was written. When fsync(2) returns, content, attributes and name survive
// a power cut. What was not synced is then as on any local file system, but content
// that takes the place of other content, by a rename or after a truncation, is whole
// or that other content is still there; and what the bucket had got comes back.
// A directory is renamed in one step. Inode numbers are never used
// again; with links, mtime and ctime they outlive the loss of the state directory,
// since objects tell them. Directories get new ones then, and readdir(3) alone may
// tell one that the first stat(2) replaces. Numbers of two gateways do not meet, but
// a file can have another on each; a write through one name of a hard link on
// another gateway can part the names. No call fails with EINTR except for a caller
// that is being killed.
//
// Names. A name has at most 255 bytes, a key at most 1024 (ENAMETOOLONG), which a
// directory's rename keeps for all below it by what the directory knows of its
// longest path; other than UTF-8 is EILSEQ, since the store could not keep it. Link
// and rename across trees are EXDEV.
//
// What is not there: device nodes (EPERM), access control lists and extended
// attributes outside user.* (ENOTSUP), access times but for those that were set
// (else the modification time), attributes of more than about one KiB in total
// (ENOSPC). Locks are the kernel's: they hold between all users of this mount and
// end there. Fifos and sockets stay on this host.
//
// Limits of size. A tree has a quota of bytes and files; what would go beyond is
// EDQUOT, exactly: it is counted in the batch that changes it, files that are open
// by their present size, without a name too. Where the kernel writes itself it can
// only be metered, ten times a second: such a file is made immutable while its tree
// is too full (EPERM, SIGBUS). New writers within 1 GiB of a limit therefore write
// through this process. The cache's volume keeps a floor: near it clean content is
// evicted, at it writes and fetches wait up to ten seconds for room, then ENOSPC.
// What the bucket brings counts as far as it is listed, and is never refused.
// fallocate(2) allocates nothing beyond the end of a file.
//
// Checkpoints. When a name or a content changes for the first time after a
// checkpoint of its tree, what was there before is noted in the index: names by
// directory and name, contents by inode, so that a directory rename hides nothing.
// From there come what a path held (Before) and what has changed (ChangesSince).
// Bytes are set aside on this host, for a day and up to 4 GiB, and a minute later
// in the bucket's history (package sync), for as long as that keeps versions.
//
// Limits of checkpoints: without reflinks of files above 64 MiB, or above 4 MiB if
// open for writing at the checkpoint, only what was uploaded is kept; nothing
// longer than a day of what the history leaves out. What other gateways change is
// not noted. The history goes by path: a rename begins a new one.
package fusefs
