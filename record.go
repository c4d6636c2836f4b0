package berth

import (
	"context"
	"encoding/json"
	"errors"
)

// ErrConflict says that a record was changed by someone else since it was read:
// read it again and decide anew.
var ErrConflict = errors.New("the record was changed by someone else")

// ErrUnavailable says that what is needed (the store, the sandboxes) is away;
// the same request may succeed later.
var ErrUnavailable = errors.New("unavailable")

// A Record is one entry of the installation's records (a workspace, member,
// key, chat or machine): JSON kept as one object under .berth/ in the bucket.
type Record struct {
	Key     string          `json:"key"`     // such as "chats/acme/members/ann/c1": ids joined by slashes
	Version string          `json:"version"` // opaque; "" means that the record does not exist
	Value   json.RawMessage `json:"value"`   // at most MaxRecord bytes
}

// MaxRecord is the largest value of a record in bytes.
const MaxRecord = 256 << 10

// Records keeps the installation's records. It can be used from many
// goroutines. Reads are answered from a local copy and work while the store is
// away; changes need the store and otherwise fail with ErrUnavailable.
type Records interface {
	// Get returns the record of a key, or an error matching fs.ErrNotExist.
	Get(ctx context.Context, key string) (Record, error)
	// List returns the records whose keys begin with prefix, by key.
	List(ctx context.Context, prefix string) ([]Record, error)
	// Put writes the value if the record's version is still rec.Version ("" = it
	// must not exist yet) and returns the new version, else ErrConflict.
	Put(ctx context.Context, rec Record) (version string, err error)
	// Delete removes the record if its version is still the given one, else
	// ErrConflict. A record that does not exist is fs.ErrNotExist.
	Delete(ctx context.Context, key, version string) error
}
