package object

import (
	"fmt"
	"io/fs"
	"unicode/utf8"
)

// MaxKey is the longest key in bytes.
const MaxKey = 1024

// CheckKey returns an error that matches fs.ErrInvalid if no store takes the
// key: it must have 1 to MaxKey bytes of valid UTF-8 without NUL.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("invalid key: it is empty: %w", fs.ErrInvalid)
	case len(key) > MaxKey:
		return fmt.Errorf("invalid key %q...: it has %d bytes, at most %d are allowed: %w", key[:64], len(key), MaxKey, fs.ErrInvalid)
	case !utf8.ValidString(key):
		return fmt.Errorf("invalid key %q: it is not valid UTF-8: %w", key, fs.ErrInvalid)
	}
	for i := 0; i < len(key); i++ {
		if key[i] == 0 {
			return fmt.Errorf("invalid key %q: it has a NUL byte: %w", key, fs.ErrInvalid)
		}
	}
	return nil
}

// CheckGet checks the arguments of Store.Get, for implementations.
func CheckGet(key string, o GetOptions) error {
	if o.Offset < 0 || o.Length < 0 {
		return fmt.Errorf("cannot get object %q: range at %d of %d bytes: %w", key, o.Offset, o.Length, fs.ErrInvalid)
	}
	return CheckKey(key)
}

// CheckPut checks the arguments of Store.Put, for implementations.
func CheckPut(key string, size int64, o PutOptions) error {
	switch {
	case size < 0:
		return fmt.Errorf("cannot put object %q: size %d: %w", key, size, fs.ErrInvalid)
	case o.IfMatch != "" && o.IfNoneMatch:
		return fmt.Errorf("cannot put object %q: both IfMatch and IfNoneMatch: %w", key, fs.ErrInvalid)
	}
	if err := CheckKey(key); err != nil {
		return err
	}
	return CheckMetadata(o.Metadata)
}

// CheckCopy checks the arguments of Store.Copy, for implementations.
func CheckCopy(dst, src string, o CopyOptions) error {
	if dst == src {
		return fmt.Errorf("cannot copy object %q onto itself: %w", dst, fs.ErrInvalid)
	}
	if err := CheckKey(dst); err != nil {
		return err
	}
	if err := CheckKey(src); err != nil {
		return err
	}
	return CheckMetadata(o.Metadata)
}

// CheckList checks the arguments of Store.List, for implementations.
func CheckList(o ListOptions) error {
	bad := func(why string) error {
		return fmt.Errorf("cannot list objects under %q: %s: %w", o.Prefix, why, fs.ErrInvalid)
	}
	switch {
	case o.Delimiter != "" && o.Delimiter != "/":
		return bad("the delimiter must be a slash")
	case o.Max < 0 || o.Max > MaxPage:
		return bad(fmt.Sprintf("a page of %d, at most %d are allowed", o.Max, MaxPage))
	case len(o.Prefix) > MaxKey || !utf8.ValidString(o.Prefix):
		return bad("the prefix is no beginning of a key")
	case len(o.After) > MaxKey && o.After[:1] != PageToken:
		return bad("After is no key")
	}
	return nil
}
