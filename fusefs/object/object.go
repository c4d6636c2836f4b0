// Package object is the bucket as the rest of berth sees it: a small interface
// over plain objects, the rules for keys and metadata, and a probe that finds
// out by real requests what a store can do.
//
// Model. A bucket maps keys to objects. An object is replaced as a whole and
// atomically: a reader sees all of one generation or all of another. Every
// generation has an ETag; equal content gives an equal ETag, so versions are
// told apart by ETag and LastModified together.
//
// Guarantees of every implementation, held by package storetest: conditional
// requests are decided by the store, atomically with the change. A request
// whose answer is lost fails with berth.ErrUnavailable, and may or may not have
// been carried out; asking again with the same condition can then answer
// ErrPrecondition, and a Head tells whose object it is.
//
// Limits. Keys are 1 to 1024 bytes of valid UTF-8. Metadata is at most
// MaxMetadata bytes, counted as it travels (see MetadataSize). A store may be
// unable to keep a key beside another one below it (see ErrOverlap).
package object

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrPrecondition says that the condition of a request did not hold, or that
// the store saw a concurrent change of the key (S3's 412 and 409). An If-Match
// on a key that does not exist is this error as well.
var ErrPrecondition = errors.New("the object was changed by someone else")

// ErrOverlap says that the store cannot keep this key beside one that exists
// already: "a" and "a/b" cannot both exist in a store that keeps objects as
// files in directories. It lasts until the other key is deleted.
var ErrOverlap = errors.New("the store cannot keep a key and another one below it")

// A Store is one bucket. It can be used from many goroutines.
//
// Errors name the key and match fs.ErrNotExist (no such object),
// ErrPrecondition, ErrOverlap, berth.ErrUnavailable (network, overload, a
// missing bucket, expired credentials, a deadline: the same request may succeed
// later), fs.ErrPermission, errors.ErrUnsupported or fs.ErrInvalid (the key, the
// metadata or the request is not one the store takes). When the caller's own
// context was cancelled the error matches its cause. Retrying is the caller's
// affair.
type Store interface {
	// Head returns what is known of an object.
	Head(ctx context.Context, key string) (Info, error)

	// Get opens an object, or a range of it, for reading. The caller closes the
	// reader; the context must live until then, and ending it ends the read.
	// Info.Size is the size of the whole object. A range that begins at or
	// behind the end is fs.ErrInvalid. A body that breaks off is an error of
	// Read that matches berth.ErrUnavailable, never a short success.
	Get(ctx context.Context, key string, o GetOptions) (io.ReadCloser, Info, error)

	// Put writes an object of the given size. The body is read from offset 0,
	// parts of it more than once and in parallel; it must not change meanwhile
	// and need not be readable after Put returned. Large bodies go up in
	// parts, which nobody sees until the last one is in. The Info returned has
	// no LastModified (see Info).
	Put(ctx context.Context, key string, body io.ReaderAt, size int64, o PutOptions) (Info, error)

	// Copy copies an object within the bucket on the store's side. Source and
	// destination must differ (fs.ErrInvalid). Of the Info returned only Key
	// and ETag are set.
	Copy(ctx context.Context, dst, src string, o CopyOptions) (Info, error)

	// Delete removes an object, with ifMatch set only if that is still its
	// ETag. An object that does not exist is no error in either case.
	Delete(ctx context.Context, key, ifMatch string) error

	// List returns one page of the objects, in the byte order of their keys.
	List(ctx context.Context, o ListOptions) (Page, error)
}

// Info describes one generation of an object.
//
// LastModified has whole seconds: some answers of a store have fractions and
// others have not, and only what all agree on can be compared. It is zero where
// the store's answer does not carry it, which is the rule for Put (asking for it
// would double the requests). A holder of a zero LastModified takes it from the
// next List or Head that shows the same ETag.
type Info struct {
	Key          string
	Size         int64
	ETag         string // without quotes
	LastModified time.Time
	Metadata     map[string]string // keys in lower case; nil from List
	ContentType  string            // "" from List
	VersionID    string            // "" where the bucket keeps no versions
}

// GetOptions choose what Get reads.
type GetOptions struct {
	Offset  int64
	Length  int64  // 0 = to the end; what lies behind the end is left out
	IfMatch string // an ETag; another one is ErrPrecondition
}

// PutOptions are the condition and attributes of a Put.
type PutOptions struct {
	IfMatch     string // an ETag that must be the current one
	IfNoneMatch bool   // the key must not exist; not together with IfMatch
	Metadata    map[string]string
	ContentType string // "" = application/octet-stream
	InParts     bool   // upload in parts whatever the size; Probe tries out a store so
}

// CopyOptions are the condition and attributes of a Copy.
type CopyOptions struct {
	SourceETag  string            // "" = any
	Metadata    map[string]string // nil = the source's metadata and content type
	ContentType string            // used with Metadata; "" = application/octet-stream
}

// ListOptions choose what List returns.
type ListOptions struct {
	Prefix    string // keys begin with it
	Delimiter string // "" or "/": what follows the next one is rolled up into Page.Prefixes
	After     string // keys behind this one, or the Next of the page before (same Prefix and Delimiter)
	Max       int    // at most so many objects and prefixes; 0 = MaxPage
}

// MaxPage is the most that one page holds.
const MaxPage = 1000

// A Page is one answer of List.
type Page struct {
	Objects  []Info   // without Metadata and ContentType
	Prefixes []string // rolled up, each ending in the delimiter
	Next     string   // opaque, for ListOptions.After; "" = this was the last page
}

// DefaultContentType is the content type of an object that was put without one.
const DefaultContentType = "application/octet-stream"

// PageToken begins every Page.Next. It is no valid UTF-8, so that no key of an
// After is taken for a token.
const PageToken = "\xff"
