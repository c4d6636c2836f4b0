// Package index keeps the namespace of fusefs on disk: inodes, directory
// entries, what is known of the bucket's objects, and the journals that make a
// gateway go on where it was after kill -9. It is the only importer of Pebble.
//
// Model. An inode has a number that is never used again; it is the FUSE nodeid
// too. A directory entry names an inode; a non-directory may have several. For
// each name of a file the bucket should hold one object under the name's key
// with the inode's generation of content and its attributes (the desired
// state); a Remote record says what was last seen or put under a key (the actual
// state). The upload queue lists inodes whose two states may differ; the doom
// list has keys whose objects are to be deleted.
//
// Durability. A batch is in the kernel's hands when Commit returns, so that the
// death of the process loses nothing; Sync makes all commits safe from power
// loss. After a power cut the index is as it was after some commit no earlier
// than the last Sync.
//
// Space. A file of the index's own is given up when the volume is full, so that
// what is in memory can be written; commits that find too little left then fail
// with ENOSPC, and succeed again when there is room.
//
// Concurrency. All reads may be called from many goroutines. Whoever reads to
// decide what to write does so inside Update, which is the lock of the
// namespace. Reads inside Update do not see that batch's own writes.
//
// On disk each key begins with one byte for its table:
//
//	n ino            Inode          d parent name    ino and type
//	b ino parent name  (empty)      r object key     Remote
//	q ino            queued at      x object key     (empty), the doom list
//	h ino object key (empty), which Remotes name an inode
//	o ino            OpenMark       m seq            Move
//	z ino            (empty), orphans, t prefix      root ino
//	g name           counters and settings
//	k tree checkpoint  when it was made
//	c ino checkpoint   Saved       e dir name 0 checkpoint  OldEntry
//	j tree checkpoint, then the key of an OldEntry or a Saved  (empty)
//	u tree           Usage
//	w ino            Unsynced
//	y ino            Digests
//
// Numbers in keys are 8 bytes, big-endian. Values begin with a version byte.
package index

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// An Ino is an inode number, the same as the FUSE nodeid. Zero is no inode.
type Ino uint64

// RootIno is the root of the mount. FirstIno and MaxIno bound the numbers given to
// anything else (JavaScript has 53 bits for them); numbers below are fusefs's for
// nodes that are not kept here.
const (
	RootIno  Ino = 1
	FirstIno Ino = 1 << 20
	MaxIno   Ino = 1<<53 - 1
)

// Types of inode in Mode, as in stat(2).
const (
	TypeMask    = 0o170000
	TypeDir     = 0o040000
	TypeFile    = 0o100000
	TypeSymlink = 0o120000
	TypeFifo    = 0o010000
	TypeSocket  = 0o140000
)

// An Inode is one file, directory, symlink, fifo or socket.
type Inode struct {
	Ino  Ino
	Tree Ino // root directory of the tree it belongs to; itself for a root

	// Parent and Name place a directory; both are zero for a root and for
	// everything that is not a directory (see DB.Names).
	Parent Ino
	Name   string

	Mode     uint32 // st_mode, with the type
	UID, GID uint32
	Size     int64 // bytes; of a symlink the length of Target
	Mtime    int64 // Unix time in nanoseconds
	Ctime    int64
	Atime    int64             // as set by utimensat(2); 0 = never set, the same as Mtime
	Links    uint32            // names of a non-directory; 0 only for an orphan
	Others   uint32            // names more that its objects tell of and that were not found here yet; shown with Links, no more
	Subdirs  uint32            // directory: directories in it; kept by Batch.Link and Unlink
	Below    uint32            // directory: no path below it is longer, counted with the slash before it; kept by Link
	Target   string            // symlink only
	Xattrs   map[string][]byte // user.* names in full; nil when there are none; never changed in place

	Gen       uint64 // generation of the content, 1 for the first; grows with each settle
	Stamp     Stamp  // when the content was written
	AttrStamp Stamp  // when the attributes were changed
	Remote    bool   // the content is only in the bucket: to be fetched before the first open
	Bare      bool   // only a LIST has told of it: mode, mtime and type are guesses until a HEAD
	Unseen    bool   // and nobody was told its number, which may become the one that its object has

	Explicit bool  // directory: wanted even when empty, has or needs a marker object
	Listed   int64 // directory: when its keys were last listed, Unix ns; 0 = never
}

// IsDir, IsFile and IsSymlink tell the type.
func (n *Inode) IsDir() bool     { return n.Mode&TypeMask == TypeDir }
func (n *Inode) IsFile() bool    { return n.Mode&TypeMask == TypeFile }
func (n *Inode) IsSymlink() bool { return n.Mode&TypeMask == TypeSymlink }

// Stored says whether the inode has an object in the bucket: fifos and sockets
// are local only.
func (n *Inode) Stored() bool { return n.IsDir() || n.IsFile() || n.IsSymlink() }

// A Stamp orders writes across gateways: a hybrid logical clock reading (48 bits
// of Unix milliseconds, 16 bits of counter) and, for ties, the gateway's id.
// The zero Stamp is earlier than any other.
type Stamp struct {
	Time    uint64
	Gateway string // at most 16 bytes of [a-z0-9]
}

// Compare is negative when s is earlier than t, zero when they are equal.
func (s Stamp) Compare(t Stamp) int {
	if c := cmp.Compare(s.Time, t.Time); c != 0 {
		return c
	}
	return cmp.Compare(s.Gateway, t.Gateway)
}

// IsZero reports whether s is the zero Stamp.
func (s Stamp) IsZero() bool { return s == Stamp{} }

// Milli returns the wall clock part, Unix time in milliseconds.
func (s Stamp) Milli() int64 { return int64(s.Time >> 16) }

// String returns 16 hexadecimal digits, a dash and the gateway; strings of
// stamps sort as the stamps do. ParseStamp reads it back.
func (s Stamp) String() string { return fmt.Sprintf("%016x-%s", s.Time, s.Gateway) }

// ParseStamp reads what String returns; the empty string is the zero Stamp.
func ParseStamp(s string) (Stamp, error) {
	if s == "" {
		return Stamp{}, nil
	}
	digits, gateway, ok := strings.Cut(s, "-")
	t, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil || len(digits) != 16 || !validGateway(gateway) {
		return Stamp{}, fmt.Errorf("cannot parse stamp %.40q", s)
	}
	return Stamp{t, gateway}, nil
}

func validGateway(s string) bool {
	if len(s) > 16 {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// An Entry is one name in a directory.
type Entry struct {
	Name string
	Ino  Ino
	Type uint32 // the type bits of Mode; 0 while the inode is Bare and may be a symlink
}

// A Name is one directory entry seen from its inode.
type Name struct {
	Parent Ino
	Name   string
}

// A Remote says what was last seen or put under a key of the bucket.
type Remote struct {
	Key          string
	ETag         string // unquoted; "" = no object is known under the key (there may be an Intent)
	LastModified int64  // as the store says, Unix ns; 0 = not known
	Size         int64
	Ino          Ino    // whose content it is
	Gen          uint64 // the generation it holds
	Stamp        Stamp  // of the content it holds
	AttrStamp    Stamp  // of the attributes it holds
	Doomed       bool   // no name has this key any more: to be deleted
	StoredAt     int64  // when our own PUT of it was answered, Unix ns of our clock; for as long as LastModified is not known

	// Intent is set before a PUT is sent and cleared by its answer: what the
	// object will hold if it arrives. Zero Gen = none.
	Intent Intent
}

// An Intent is an upload that may or may not have reached the store.
type Intent struct {
	Ino              Ino
	Gen              uint64
	Stamp, AttrStamp Stamp
}

// An OpenMark is kept while an inode may be written to: what its cache file
// looked like when the first writer opened it.
type OpenMark struct {
	Size  int64
	Mtime int64 // Unix ns
	Ctime int64 // of the cache file itself, Unix ns
	Fresh bool  // created or truncated by this open: counts as changed whatever the times say
	Swap  bool  // truncated by taking a new content file, the old one is kept: see Unsynced
}

// A Move is a directory rename whose objects have not all followed yet.
type Move struct {
	Seq       uint64
	OldPrefix string // of the bucket, ending in a slash
	Dir       Ino
}
