// Package mounts puts views into slots, keeps the installation's records, and
// serves both to the gateway over a unix socket.
//
// Terms. The file system is the one FUSE mount of the bucket, at STATE/fs/bucket. A
// slot is a directory STATE/slots/ID that a container sees from its start:
// ID/home is bound to its /home and ID/ctl, which belongs to the gateway, to its
// /run/berth. A view is mounted at ID/home/user when a chat claims the
// container. STATE/view is the gateway's own mount of the file system.
//
// Model. STATE/slots is a bind mount of itself and shared, and containers bind
// ID/home as rslave: what is mounted in a slot appears in its container, and
// nothing comes back. A view is put together at a private place, STATE/stage,
// and then moved into the slot in one step, so that no container sees half of
// one. Every mount is nosuid and nodev. All places derive from ids; they are
// opened with openat2, below a directory that is held open, following no link.
//
// Recovery. What is claimed is written to STATE/slots.d before it is mounted.
// After a kill -9, or a Close without Unmount for a restart, the mounts of the
// dead process answer ENOTCONN, while the kernel goes on with reads and writes of
// files that were open; Prepare clears
// those nobody looks at, and Start puts fresh views under the dead ones in the
// slots and takes those away, so that new opens by path work again in running
// containers. STATE/slots itself is kept for that: a new bind mount would have
// no containers behind it. Where it is gone (after Unmount, or a boot) no
// container can be reached through the old slots, and Prepare removes them.
//
// Records are objects .berth/records/KEY.json in the bucket, changed by
// conditional PUT, with a local copy from which they are read. See Records.
//
// Limits. Needs root and Linux 5.12. Putting a view under a dead one needs
// Linux 6.5; before, there is a moment with neither, in which the directory is
// empty and read-only. The id-mapped mount for the gateway needs Linux 6.12.
package mounts
