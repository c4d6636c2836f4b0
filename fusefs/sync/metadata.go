package sync

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/fusefs/index"
	"berth/fusefs/object"
)

// Names of the metadata. The first group is AWS's convention, the second is
// read by s3fs and rclone, the third is berth's own.
const (
	metaOwner       = "file-owner"
	metaGroup       = "file-group"
	metaPermissions = "file-permissions"
	metaFileMtime   = "file-mtime"
	metaFileAtime   = "file-atime"

	metaMtime = "mtime"
	metaMode  = "mode"
	metaUID   = "uid"
	metaGID   = "gid"

	metaStamp     = "berth-hlc"
	metaAttrStamp = "berth-attr-hlc"
	metaCtime     = "berth-ctime"
	metaIno       = "berth-ino"
	metaKey       = "berth-key"
	metaLinks     = "berth-links"
	metaXattrs    = "berth-xattrs"
)

// Modes of what has none in its metadata.
const (
	defaultFileMode = index.TypeFile | 0o644
	defaultDirMode  = index.TypeDir | 0o755
)

// otherMetadata is the room for all metadata except extended attributes.
const otherMetadata = 384

// MaxXattrs is how many bytes the extended attributes of an inode may have,
// counted by XattrSize.
const MaxXattrs = (object.MaxMetadata - otherMetadata - len(metaXattrs)) / 4 * 3

// XattrSize counts extended attributes against MaxXattrs.
func XattrSize(x map[string][]byte) int { return len(appendXattrs(nil, x)) }

// CheckXattrs returns an error that matches syscall.ENOSPC when there are more
// extended attributes than an object can carry.
func CheckXattrs(x map[string][]byte) error {
	if n := XattrSize(x); n > MaxXattrs {
		return fmt.Errorf("cannot keep extended attributes: %d bytes, at most %d fit: %w", n, MaxXattrs, syscall.ENOSPC)
	}
	return nil
}

// encodeMetadata returns the metadata of an inode's object under a key. Extended
// attributes that do not fit are left out: fusefs refuses them, see CheckXattrs.
func encodeMetadata(n *index.Inode, key string, owner bool) map[string]string {
	m := map[string]string{
		metaPermissions: fmt.Sprintf("%07o", n.Mode),
		metaFileMtime:   strconv.FormatInt(n.Mtime, 10) + "ns",
		metaMtime:       formatSeconds(n.Mtime),
		metaCtime:       strconv.FormatInt(n.Ctime, 10) + "ns",
	}
	encodeIdentity(m, n, key)
	if n.Atime != 0 {
		m[metaFileAtime] = strconv.FormatInt(n.Atime, 10) + "ns"
	}
	if owner {
		m[metaOwner] = strconv.FormatUint(uint64(n.UID), 10)
		m[metaGroup] = strconv.FormatUint(uint64(n.GID), 10)
	}
	if !n.Stamp.IsZero() {
		m[metaStamp] = n.Stamp.String()
	}
	if !n.AttrStamp.IsZero() {
		m[metaAttrStamp] = n.AttrStamp.String()
	}
	if x := appendXattrs(nil, n.Xattrs); len(x) > 0 && len(x) <= MaxXattrs {
		m[metaXattrs] = base64.RawURLEncoding.EncodeToString(x)
	}
	return m
}

// attributes are what an object says of its file.
type attributes struct {
	mode             uint32 // with a type that fits the key, never 0
	uid, gid         uint32
	owned            bool // uid and gid are told
	mtime, ctime     int64
	atime            int64 // 0 = as mtime
	xattrs           map[string][]byte
	stamp, attrStamp index.Stamp // of a foreign object by LastModified, without a gateway
	foreign          bool        // the content has no valid stamp of its own
	foreignAttr      bool        // nor have the attributes
	identity         identity
}

// decodeAttributes reads metadata that anybody may have written: what is not
// understood counts as absent. dir says that the key is a directory's marker.
func decodeAttributes(info object.Info, dir bool) attributes {
	m := info.Metadata
	modified := info.LastModified
	a := attributes{mode: defaultFileMode, mtime: modified.UnixNano()}
	if modified.IsZero() {
		a.mtime = 0
	}
	a.stamp, a.foreign = decodeStamp(m[metaStamp], modified)
	a.attrStamp, a.foreignAttr = decodeStamp(m[metaAttrStamp], time.Time{})
	if a.attrStamp.IsZero() {
		a.attrStamp = a.stamp
	}
	if dir {
		a.mode = defaultDirMode
	}
	if mode, ok := decodeMode(m, dir, !a.foreign || !a.foreignAttr); ok {
		a.mode = mode
	}
	a.uid, a.gid, a.owned = decodeOwner(m)
	if t, ok := decodeMtime(m); ok {
		a.mtime = t
	}
	if t, ok := parseNano(m[metaFileAtime]); ok && t != a.mtime {
		a.atime = t
	}
	a.ctime = a.mtime
	if t, ok := parseNano(m[metaCtime]); ok {
		a.ctime = t
	}
	a.xattrs = decodeXattrs(m[metaXattrs])
	a.identity = decodeIdentity(m)
	return a
}

func decodeStamp(v string, modified time.Time) (s index.Stamp, foreign bool) {
	if s, err := index.ParseStamp(v); err == nil && !s.IsZero() && s.Gateway != "" {
		return s, false
	}
	if modified.IsZero() {
		return index.Stamp{}, true
	}
	return index.Stamp{Time: uint64(max(modified.UnixMilli(), 0)) << 16}, true
}

// decodeMode reads AWS's octal mode, else the decimal one of s3fs. rclone writes
// octal digits under that name too: as a decimal number those have no valid type.
// A mode without any permission is believed only of berth itself.
func decodeMode(m map[string]string, dir, own bool) (uint32, bool) {
	for _, v := range []struct {
		text string
		base int
	}{{m[metaPermissions], 8}, {m[metaMode], 10}} {
		n, err := strconv.ParseUint(v.text, v.base, 32)
		if err != nil || n > index.TypeMask|0o7777 {
			continue
		}
		mode := uint32(n)
		if mode&index.TypeMask == 0 {
			mode |= defaultType(dir)
		}
		typ := mode & index.TypeMask
		if dir != (typ == index.TypeDir) || !dir && typ != index.TypeFile && typ != index.TypeSymlink {
			continue
		}
		if mode&0o777 == 0 && !own {
			continue
		}
		return mode, true
	}
	return 0, false
}

func defaultType(dir bool) uint32 {
	if dir {
		return index.TypeDir
	}
	return index.TypeFile
}

func decodeOwner(m map[string]string) (uid, gid uint32, ok bool) {
	for _, names := range [][2]string{{metaOwner, metaGroup}, {metaUID, metaGID}} {
		u, uerr := strconv.ParseUint(m[names[0]], 10, 32)
		g, gerr := strconv.ParseUint(m[names[1]], 10, 32)
		if uerr == nil && gerr == nil && uint32(u) != ^uint32(0) && uint32(g) != ^uint32(0) {
			return uint32(u), uint32(g), true
		}
	}
	return 0, 0, false
}

func decodeMtime(m map[string]string) (int64, bool) {
	if t, ok := parseNano(m[metaFileMtime]); ok {
		return t, true
	}
	return parseSeconds(m[metaMtime])
}

// parseNano reads AWS's times: nanoseconds with the suffix, else milliseconds.
func parseNano(v string) (int64, bool) {
	digits, nano := strings.CutSuffix(v, "ns")
	t, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, false
	}
	if nano {
		return t, true
	}
	if t > maxTime/1_000_000 || t < -maxTime/1_000_000 {
		return 0, false
	}
	return t * 1e6, true
}

const maxTime = math.MaxInt64

// formatSeconds writes a time as seconds with nine digits behind the point, the
// sign before all.
func formatSeconds(ns int64) string {
	sign, abs := "", uint64(ns)
	if ns < 0 {
		sign, abs = "-", -uint64(ns)
	}
	return fmt.Sprintf("%s%d.%09d", sign, abs/1e9, abs%1e9)
}

func parseSeconds(v string) (int64, bool) {
	digits, negative := strings.CutPrefix(v, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	sec, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || sec > maxTime/1_000_000_000-1 {
		return 0, false
	}
	fraction = (fraction + "000000000")[:9]
	nsec, err := strconv.ParseUint(fraction, 10, 63)
	if err != nil {
		return 0, false
	}
	t := int64(sec*1e9 + nsec)
	if negative {
		t = -t
	}
	return t, true
}

func appendXattrs(b []byte, x map[string][]byte) []byte {
	names := make([]string, 0, len(x))
	for name := range x {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
		b = append(binary.AppendUvarint(b, uint64(len(x[name]))), x[name]...)
	}
	return b
}

// decodeXattrs reads what appendXattrs wrote; nil when it is damaged or empty.
func decodeXattrs(v string) map[string][]byte {
	b, err := base64.RawURLEncoding.DecodeString(v)
	if err != nil || len(b) == 0 {
		return nil
	}
	x := make(map[string][]byte)
	for len(b) > 0 {
		var name, value []byte
		var ok bool
		if name, b, ok = cutField(b); !ok {
			return nil
		}
		if value, b, ok = cutField(b); !ok {
			return nil
		}
		if !strings.HasPrefix(string(name), "user.") || len(name) > maxName {
			continue
		}
		x[string(name)] = append([]byte{}, value...)
	}
	if len(x) == 0 {
		return nil
	}
	return x
}

func cutField(b []byte) (field, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	b = b[size:]
	return b[:n], b[n:], true
}
