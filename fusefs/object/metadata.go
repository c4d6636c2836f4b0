package object

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"mime"
	"strings"
)

// MaxMetadata is how much metadata an object can have: S3 counts the bytes of
// all names and values as they travel. MetadataSize counts them.
const MaxMetadata = 2048

// Metadata travels in HTTP headers, which hold printable ASCII only and lose
// spaces at the ends. A value that would not survive is written as one encoded
// word of RFC 2047, "=?UTF-8?B?...?=", which is also how S3 itself shows such
// values. The bytes inside need not be UTF-8.
const (
	wordStart = "=?UTF-8?B?"
	wordEnd   = "?="
)

// EncodeMetadataValue returns the value as it travels: itself where it can,
// else as an encoded word. DecodeMetadataValue reads it back exactly.
func EncodeMetadataValue(v string) string {
	if plainValue(v) {
		return v
	}
	return wordStart + base64.StdEncoding.EncodeToString([]byte(v)) + wordEnd
}

// plainValue reports whether the value survives as it is. Quotes and what XML
// and JSON escape are left out, since some stores lose room or bytes over them.
func plainValue(v string) bool {
	if v == "" {
		return true
	}
	if strings.HasPrefix(v, "=?") || v[0] == ' ' || v[len(v)-1] == ' ' {
		return false
	}
	for i := 0; i < len(v); i++ {
		if c := v[i]; c < ' ' || c > '~' || c == '"' || c == '<' || c == '>' || c == '&' || c == '\\' {
			return false
		}
	}
	return true
}

// DecodeMetadataValue reads what EncodeMetadataValue wrote. Encoded words that
// other tools wrote are decoded as well; what cannot be decoded stays as it is.
func DecodeMetadataValue(v string) string {
	if !strings.HasPrefix(v, "=?") {
		return v
	}
	inner, ok := strings.CutPrefix(v, wordStart)
	if ok {
		inner, ok = strings.CutSuffix(inner, wordEnd)
	}
	if ok {
		if raw, err := base64.StdEncoding.Strict().DecodeString(inner); err == nil {
			return string(raw)
		}
	}
	var dec mime.WordDecoder
	if s, err := dec.DecodeHeader(v); err == nil {
		return s
	}
	return v
}

// MetadataSize is what the metadata counts against MaxMetadata.
func MetadataSize(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(EncodeMetadataValue(v))
	}
	return n
}

// CheckMetadata returns an error that matches fs.ErrInvalid if the metadata
// cannot travel: names are of [a-z0-9._-], and all of it is at most MaxMetadata.
func CheckMetadata(m map[string]string) error {
	for k := range m {
		if k == "" || strings.Trim(k, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
			return fmt.Errorf("invalid metadata name %q: only a-z, 0-9, '.', '_' and '-' are allowed: %w", k, fs.ErrInvalid)
		}
	}
	if n := MetadataSize(m); n > MaxMetadata {
		return fmt.Errorf("invalid metadata: it has %d bytes, at most %d are allowed: %w", n, MaxMetadata, fs.ErrInvalid)
	}
	return nil
}
