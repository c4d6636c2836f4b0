package sync

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

// historyPrefix begins the keys of the history. A version of a key is the object
//
//	.berth/history/{key}/{stamp}.1{end}
//
// a copy of content and metadata. {stamp} is index.Stamp.String of its content; a
// foreign object has the store's date and, for a gateway, the beginning of its
// ETag. 1 is the version of this format: what has another is left alone. {end} is
// one letter, see ends. A {key} that is too long for that is long-{its SHA-256 in
// hexadecimal}; such are not found by their directory.
const historyPrefix = ".berth/history/"

const (
	historyFormat = '1'
	longKey       = "long-"
)

// ends has the letter of each end.
var ends = map[berth.VersionEnd]byte{berth.EndOverwritten: 'o', berth.EndDeleted: 'd', berth.EndLost: 'l'}

// historyDir returns what the history's keys of a key begin with.
func historyDir(key string) string {
	key = strings.TrimSuffix(key, "/")
	const name = len("/") + 17 + 16 + len(".1o")
	if len(historyPrefix)+len(key)+name > object.MaxKey {
		sum := sha256.Sum256([]byte(key))
		key = longKey + hex.EncodeToString(sum[:])
	}
	return historyPrefix + key + "/"
}

// isLong says whether the history has this instead of a key.
func isLong(key string) bool {
	sum, ok := strings.CutPrefix(key, longKey)
	return ok && len(sum) == 2*sha256.Size && !strings.Contains(sum, "/")
}

// historyKey is where a version of a key is kept.
func historyKey(key string, stamp index.Stamp, end berth.VersionEnd) string {
	return historyDir(key) + versionID(stamp, end)
}

func versionID(stamp index.Stamp, end berth.VersionEnd) string {
	return fmt.Sprintf("%s.%c%c", stamp, historyFormat, ends[end])
}

// parseVersionID reads what versionID returns; ok is false for anything else.
func parseVersionID(id string) (stamp index.Stamp, end berth.VersionEnd, ok bool) {
	text, kind, _ := strings.Cut(id, ".")
	if len(kind) != 2 || kind[0] != historyFormat {
		return stamp, "", false
	}
	for e, letter := range ends {
		if letter == kind[1] {
			end = e
		}
	}
	stamp, err := index.ParseStamp(text)
	return stamp, end, err == nil && end != "" && text != ""
}

// checkVersionID refuses what names no version.
func checkVersionID(id string) error {
	if _, _, ok := parseVersionID(id); !ok {
		return fmt.Errorf("invalid version %.60q, the versions of a path are listed with it: %w", id, fs.ErrInvalid)
	}
	return nil
}

// toVersion makes a Version of an object of the history; ok is false when it is
// none.
func toVersion(info object.Info) (key string, v berth.Version, ok bool) {
	path := strings.TrimPrefix(info.Key, historyPrefix)
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 {
		return "", v, false
	}
	stamp, end, ok := parseVersionID(path[slash+1:])
	v = berth.Version{ID: path[slash+1:], Time: time.UnixMilli(stamp.Milli()).UTC(), Size: info.Size, Ended: info.LastModified, End: end}
	return path[:slash], v, ok
}

// versionStamp names the content of an object for the history. own is what berth
// wrote in it, if it did; modified is Unix time in nanoseconds.
func versionStamp(own index.Stamp, modified int64, etag string) index.Stamp {
	if !own.IsZero() && own.Gateway != "" {
		return own
	}
	s := index.Stamp{Time: uint64(max(modified/1e6, 0)) << 16}
	if modified == 0 {
		s.Time = own.Time
	}
	for _, c := range strings.ToLower(etag) {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' {
			s.Gateway += string(c)
		}
		if len(s.Gateway) == 16 {
			break
		}
	}
	return s
}
