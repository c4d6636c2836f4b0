package sync

import (
	"errors"
	"maps"
	"math"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/fusefs/index"
	"berth/fusefs/object"
)

var modified = time.Unix(1_700_000_000, 0)

func TestEncodeMetadata(t *testing.T) {
	n := index.Inode{Ino: 7, Mode: index.TypeFile | 0o644, UID: 1000, GID: 1001, Mtime: 1_500_000_000_000_000_001, Ctime: -1, Links: 2, Others: 1,
		Stamp: index.Stamp{Time: 0x123, Gateway: "gw"}, AttrStamp: index.Stamp{Time: 0x124, Gateway: "gw"},
		Xattrs: map[string][]byte{"user.a": {0, 255}}}
	want := map[string]string{
		"file-owner": "1000", "file-group": "1001", "file-permissions": "0100644",
		"file-mtime": "1500000000000000001ns", "mtime": "1500000000.000000001",
		"berth-hlc": "0000000000000123-gw", "berth-attr-hlc": "0000000000000124-gw",
		"berth-ctime": "-1ns", "berth-ino": "7", "berth-key": "85cddc36c93f8a4c", "berth-links": "3", "berth-xattrs": "BnVzZXIuYQIA_w",
	}
	if got := encodeMetadata(&n, "dir/name", true); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	delete(want, "file-owner")
	delete(want, "file-group")
	if got := encodeMetadata(&n, "dir/name", false); !maps.Equal(got, want) {
		t.Errorf("without owner: got %v, want %v", got, want)
	}
}

func TestMetadataRoundTrip(t *testing.T) {
	stamp := index.Stamp{Time: 99, Gateway: "a"}
	for _, n := range []index.Inode{
		{Mode: index.TypeFile | 0o4755, Mtime: 1, Ctime: 2, Stamp: stamp, AttrStamp: stamp, UID: 5, GID: 6},
		{Mode: index.TypeFile, Mtime: -1_500_000_001, Atime: 7, Ctime: math.MinInt64 + 1, Stamp: stamp},
		{Mode: index.TypeSymlink | 0o777, AttrStamp: stamp},
		{Mode: index.TypeDir | 0o1700, Mtime: math.MaxInt64, AttrStamp: stamp, Xattrs: map[string][]byte{"user.x": {}}},
	} {
		a := decodeAttributes(object.Info{Metadata: encodeMetadata(&n, "k", true), LastModified: modified}, n.IsDir())
		got := index.Inode{Mode: a.mode, UID: a.uid, GID: a.gid, Mtime: a.mtime, Ctime: a.ctime, Atime: a.atime, Xattrs: a.xattrs,
			Stamp: a.own(), AttrStamp: a.ownAttr()}
		if !reflect.DeepEqual(got, n) {
			t.Errorf("got %+v, want %+v", got, n)
		}
	}
}

func TestDecodeForeignMetadata(t *testing.T) {
	file, dir := uint32(index.TypeFile), uint32(index.TypeDir)
	at := modified.UnixNano()
	for _, tc := range []struct {
		name  string
		meta  map[string]string
		dir   bool
		mode  uint32
		mtime int64
	}{
		{"nothing", nil, false, file | 0o644, at},
		{"nothing of a directory", nil, true, dir | 0o755, at},
		{"AWS", map[string]string{"file-permissions": "0100600", "file-mtime": "1500000000123456789ns"}, false, file | 0o600, 1500000000123456789},
		{"AWS in milliseconds", map[string]string{"file-mtime": "1500000000123"}, false, file | 0o644, 1500000000123000000},
		{"permissions only", map[string]string{"file-permissions": "0755"}, false, file | 0o755, at},
		{"s3fs", map[string]string{"mode": "33188", "mtime": "1500000000.000000005"}, false, file | 0o644, 1500000000000000005},
		{"rclone", map[string]string{"mode": "100600", "mtime": "1500000000.5"}, false, file | 0o644, 1500000000500000000},
		{"AWS before s3fs", map[string]string{"file-permissions": "0100600", "mode": "33188"}, false, file | 0o600, at},
		{"symlink", map[string]string{"file-permissions": "0120777"}, false, index.TypeSymlink | 0o777, at},
		{"no permissions at all", map[string]string{"file-permissions": "0100000"}, false, file | 0o644, at},
		{"of another type", map[string]string{"file-permissions": "0040755"}, false, file | 0o644, at},
		{"a file's on a directory", map[string]string{"file-permissions": "0100644"}, true, dir | 0o755, at},
		{"device", map[string]string{"file-permissions": "0020644"}, false, file | 0o644, at},
		{"garbage", map[string]string{"file-permissions": "-1", "mode": "0x1", "file-mtime": "9e9ns", "mtime": "1.x"}, false, file | 0o644, at},
		{"out of range", map[string]string{"file-mtime": "99999999999999999999ns", "mtime": "9999999999999"}, false, file | 0o644, at},
		{"milliseconds out of range", map[string]string{"file-mtime": "9223372036854775807"}, false, file | 0o644, at},
	} {
		a := decodeAttributes(object.Info{Metadata: tc.meta, LastModified: modified}, tc.dir)
		if a.mode != tc.mode || a.mtime != tc.mtime {
			t.Errorf("%s: got mode %o and mtime %d, want %o and %d", tc.name, a.mode, a.mtime, tc.mode, tc.mtime)
		}
		if want := uint64(modified.UnixMilli()) << 16; !a.foreign || a.stamp.Time != want {
			t.Errorf("%s: stamp %v, want that of LastModified", tc.name, a.stamp)
		}
	}
}

func TestCheckXattrs(t *testing.T) {
	n := index.Inode{Ino: math.MaxUint64, Links: math.MaxUint32, Atime: math.MinInt64 + 1, Mode: index.TypeFile | 0o7777, UID: math.MaxUint32, GID: math.MaxUint32, Mtime: math.MinInt64 + 1,
		Ctime: math.MinInt64 + 1, Stamp: index.Stamp{Time: math.MaxUint64, Gateway: strings.Repeat("g", 16)},
		Xattrs: map[string][]byte{"user.big": nil}}
	n.AttrStamp = n.Stamp
	n.Xattrs["user.big"] = make([]byte, MaxXattrs-XattrSize(n.Xattrs)-1)
	if err := CheckXattrs(n.Xattrs); err != nil {
		t.Errorf("the most that fits: %v", err)
	}
	m := encodeMetadata(&n, "k", true)
	if err := object.CheckMetadata(m); err != nil || m[metaXattrs] == "" {
		t.Errorf("metadata of the most that fits: %v", err)
	}
	n.Xattrs["user.one"] = []byte("more")
	if err := CheckXattrs(n.Xattrs); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("more than fits: got %v, want ENOSPC", err)
	}
}

func FuzzDecodeAttributes(f *testing.F) {
	f.Add("0100644", "33188", "1ns", "1.5", "0000000000000001-a", "BnVzZXIuYQIA_w", false)
	f.Add("", "", "-9223372036854775808ns", "-9223372036.999999999", "-", "____", true)
	f.Fuzz(func(t *testing.T, perm, mode, fileMtime, mtime, hlc, xattrs string, dir bool) {
		m := map[string]string{metaPermissions: perm, metaMode: mode, metaFileMtime: fileMtime, metaMtime: mtime,
			metaStamp: hlc, metaAttrStamp: hlc, metaXattrs: xattrs}
		a := decodeAttributes(object.Info{Metadata: m, LastModified: modified}, dir)
		typ := a.mode & index.TypeMask
		if dir != (typ == index.TypeDir) || !dir && typ != index.TypeFile && typ != index.TypeSymlink {
			t.Errorf("type %o of a key with dir=%v", typ, dir)
		}
		if a.foreign && a.mode&0o777 == 0 {
			t.Errorf("mode %o of a foreign object", a.mode)
		}
		n := index.Inode{Mode: a.mode, Mtime: a.mtime, Ctime: a.ctime, Xattrs: a.xattrs, Stamp: a.own(), AttrStamp: a.ownAttr()}
		if XattrSize(n.Xattrs) > MaxXattrs {
			return
		}
		again := decodeAttributes(object.Info{Metadata: encodeMetadata(&n, "k", false), LastModified: modified}, dir)
		if n.AttrStamp.IsZero() && n.Mode&0o777 == 0 {
			return
		}
		if again.mode != a.mode || again.mtime != a.mtime || again.ctime != a.ctime || !reflect.DeepEqual(again.xattrs, a.xattrs) {
			t.Errorf("written and read back: got %+v, want %+v", again, a)
		}
	})
}

func FuzzCheckKey(f *testing.F) {
	for _, key := range []string{"a", "a/b/", "a//b", "./a", "../a", "", "/", "\xff", "a\x00b", strings.Repeat("x", 256), strings.Repeat("x/", 600)} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if CheckKey(key) == nil && object.CheckKey(key) != nil {
			t.Errorf("key %q passes here and is refused by the store: %v", key, object.CheckKey(key))
		}
	})
}
