package index

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// tableHolder has a key "h ino object-key" for each Remote that names an inode.
// A record can outlive its Remote's change of inode within one batch, so that
// readers look at the Remote itself too.
const tableHolder = 'h'

func holderKey(ino Ino, key string) []byte {
	return append(inoKey(tableHolder, ino), key...)
}

// Holders returns the Remotes that hold, or held when last seen, content of an
// inode, by key.
func (db *DB) Holders(ino Ino) ([]Remote, error) {
	prefix := inoKey(tableHolder, ino)
	var keys []string
	err := db.scan(prefix, nil, func(k, _ []byte) bool {
		keys = append(keys, string(k[len(prefix):]))
		return true
	})
	if err != nil {
		return nil, err
	}
	var out []Remote
	for _, key := range keys {
		r, ok, err := db.Remote(key)
		if err != nil {
			return nil, err
		}
		if ok && r.Ino == ino {
			out = append(out, r)
		}
	}
	return out, nil
}

// holds keeps the holder table in step with a Remote that is being written.
func (b *Batch) holds(r Remote) {
	b.unhold(r.Key, r.Ino)
	if r.Ino != 0 {
		b.set(holderKey(r.Ino, r.Key), nil)
	}
}

// unhold forgets which inode the Remote of a key named, unless it is keep. What
// cannot be read is left: Holders does not trust the table alone.
func (b *Batch) unhold(key string, keep Ino) {
	if old, ok, err := b.db.Remote(key); err == nil && ok && old.Ino != keep && old.Ino != 0 {
		b.delete(holderKey(old.Ino, key))
	}
}

// QueuedAfter returns up to limit inodes of the upload queue whose numbers are
// above the given one, and when each was queued (Unix ns).
func (db *DB) QueuedAfter(after Ino, limit int) (inos []Ino, at []int64, err error) {
	err = db.scan([]byte{tableQueue}, inoKey(tableQueue, after+1), func(k, v []byte) bool {
		inos = append(inos, keyIno(k))
		at = append(at, int64(binary.BigEndian.Uint64(v)))
		return len(inos) < limit
	})
	return inos, at, err
}

// DoomedAfter returns up to limit keys of the doom list that begin with prefix
// and sort after the given one ("" = from the first).
func (db *DB) DoomedAfter(prefix, after string, limit int) ([]string, error) {
	var from []byte
	if after >= prefix && after != "" {
		from = append(stringKey(tableDoom, after), 0)
	}
	var out []string
	err := db.scan(stringKey(tableDoom, prefix), from, func(k, _ []byte) bool {
		out = append(out, string(k[1:]))
		return len(out) < limit
	})
	return out, err
}

// RemotesAfter returns up to limit Remotes whose keys begin with prefix and sort
// after the given key ("" = from the first).
func (db *DB) RemotesAfter(prefix, after string, limit int) ([]Remote, error) {
	var out []Remote
	from := ""
	if after != "" {
		from = after + "\x00"
	}
	err := db.Remotes(prefix, from, func(r Remote) bool {
		out = append(out, r)
		return len(out) < limit
	})
	return out, err
}

// PutSettingNow keeps a number under a name at once. Unlike a Batch it can be
// used inside Update.
func (db *DB) PutSettingNow(name string, v uint64) error {
	err := db.applyOne(settingKey(name), binary.BigEndian.AppendUint64(nil, v))
	if err != nil {
		return errors.Join(fmt.Errorf("cannot write setting %s", name), err)
	}
	return nil
}
