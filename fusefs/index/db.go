package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Sizes of the index in memory.
const (
	blockCacheBytes = 64 << 20
	memTableBytes   = 16 << 20
	cachedInodes    = 1 << 16 // and as many entries and names
)

// The tables, each the first byte of its keys.
const (
	tableInode    = 'n'
	tableEntry    = 'd'
	tableName     = 'b'
	tableRemote   = 'r'
	tableQueue    = 'q'
	tableDoom     = 'x'
	tableOpen     = 'o'
	tableMove     = 'm'
	tableOrphan   = 'z'
	tableTree     = 't'
	tableSettings = 'g'
	tableUsage    = 'u'
	tableUnsynced = 'w'
	tableDigests  = 'y'
)

// A DB is an open index. Close it; it is closed by nobody else.
type DB struct {
	pebble  *pebble.DB
	lock    *pebble.Lock
	log     *batchLog
	reserve *reserve
	book    book // of what trees hold

	// What was used last: inodes; entries of names, Ino 0 where there is none; and
	// the names of inodes that have one and are no directories.
	inodes  *recent[Ino, Inode]
	entries *recent[Name, Entry]
	names   *recent[Ino, Name]

	// update is the lock of the namespace, held by Update. It is taken before
	// any other lock of this package.
	update sync.Mutex

	// mu protects the fields below. Lock order: update, mu, commit.
	mu      sync.Mutex
	numbers numbers
	nextSeq uint64

	// commit is held over the commit of one batch and protects the field below.
	commit  sync.Mutex
	flushed <-chan struct{} // closed when Pebble has on disk what the log's other file holds
}

// Open opens the index in dir, making it if it is not there. A directory that
// another process has open is refused with an error matching fs.ErrExist.
func Open(dir string, log *slog.Logger) (*DB, error) {
	db := &DB{inodes: newRecent[Ino, Inode](cachedInodes), entries: newRecent[Name, Entry](cachedInodes),
		names: newRecent[Ino, Name](cachedInodes)}
	db.book.init()
	cache := pebble.NewCache(blockCacheBytes)
	defer cache.Unref()
	opts := &pebble.Options{
		Cache:        cache,
		DisableWAL:   true, // see batchLog
		MemTableSize: memTableBytes,
		Logger:       pebbleLogger{log},
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot open index: %w", err)
	}
	lock, err := pebble.LockDirectory(dir, vfs.Default)
	if err != nil {
		return nil, fmt.Errorf("cannot open index %s: another berth has it open, stop it first (%v): %w", dir, err, fs.ErrExist)
	}
	opts.Lock, db.lock = lock, lock
	if db.reserve, err = newReserve(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot open index %s: %w", dir, err), lock.Close())
	}
	opts.FS = vfs.OnDiskFull(vfs.Default, db.reserve.release)
	db.pebble, err = pebble.Open(dir, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot open index %s: %w", dir, err), lock.Close())
	}
	if err := errors.Join(db.replay(dir), db.load()); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot open index %s: %w", dir, err), db.Close())
	}
	return db, nil
}

// load reads the counters. An index that another version of berth wrote is refused.
func (db *DB) load() error {
	next, err := db.Setting("ino")
	if err != nil {
		return err
	}
	if wrote, err := db.Setting("version"); err != nil || next != 0 && wrote != version {
		return errors.Join(err, fmt.Errorf("it has version %d, not %d: %w", wrote, version, errOther))
	}
	if err := db.PutSettingNow("version", version); err != nil {
		return err
	}
	if err := db.loadNumbers(Ino(next)); err != nil {
		return err
	}
	moves, err := db.Moves()
	if err != nil {
		return err
	}
	for _, m := range moves {
		db.nextSeq = max(db.nextSeq, m.Seq)
	}
	unsynced, err := db.AllUnsynced()
	if err != nil {
		return err
	}
	for _, u := range unsynced {
		db.nextSeq = max(db.nextSeq, u.Seq)
	}
	return db.loadUsage()
}

// Close closes the index. No call may be under way.
func (db *DB) Close() error {
	err := db.pebble.Close()
	if db.log != nil {
		err = errors.Join(err, db.log.close())
	}
	if err = errors.Join(err, db.lock.Close()); err != nil {
		return fmt.Errorf("cannot close index: %w", err)
	}
	return nil
}

// Sync makes every commit so far safe from power loss.
func (db *DB) Sync() error {
	if err := db.log.sync(); err != nil {
		return fmt.Errorf("cannot sync index: %w", err)
	}
	return nil
}

// Commits returns how much was committed so far: while it returns the same as
// before a Sync all of it is safe.
func (db *DB) Commits() uint64 { return db.log.last() }

// newSeq returns the next number for a Move or an Unsynced.
func (db *DB) newSeq() uint64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.nextSeq++
	return db.nextSeq
}

// Update runs f with the lock of the namespace held and commits the batch that f
// filled if f returns nil. Nothing else changes the index meanwhile, so f may
// read with the DB's methods and decide; it must not do store I/O or wait for
// the kernel. An error of f is returned as it is.
func (db *DB) Update(f func(b *Batch) error) error {
	db.update.Lock()
	defer db.update.Unlock()
	b := &Batch{db: db, batch: db.pebble.NewBatch()}
	defer b.batch.Close()
	if err := f(b); err != nil {
		return err
	}
	return b.commit()
}

// get copies the value of a key; ok is false when there is none.
func (db *DB) get(key []byte) (value []byte, ok bool, err error) {
	v, closer, err := db.pebble.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot read index: %w", err)
	}
	value = append([]byte{}, v...)
	return value, true, closer.Close()
}

// scan calls f for each key that begins with prefix and is >= from (nil = all),
// in order, until f returns false. The slices are valid during the call only.
func (db *DB) scan(prefix, from []byte, f func(key, value []byte) bool) error {
	if from == nil {
		from = prefix
	}
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return fmt.Errorf("cannot read index: %w", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if !f(it.Key(), it.Value()) {
			break
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return fmt.Errorf("cannot read index: %w", err)
	}
	return nil
}

// prefixEnd returns the first key after all that begin with prefix, nil if there
// is none.
func prefixEnd(prefix []byte) []byte {
	end := append([]byte{}, prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

func inoKey(table byte, ino Ino) []byte {
	return binary.BigEndian.AppendUint64([]byte{table}, uint64(ino))
}

func entryKey(parent Ino, name string) []byte {
	return append(binary.BigEndian.AppendUint64(append(make([]byte, 0, 9+len(name)), tableEntry), uint64(parent)), name...)
}

func nameKey(ino, parent Ino, name string) []byte {
	k := binary.BigEndian.AppendUint64(append(make([]byte, 0, 17+len(name)), tableName), uint64(ino))
	return append(binary.BigEndian.AppendUint64(k, uint64(parent)), name...)
}

func stringKey(table byte, s string) []byte { return append([]byte{table}, s...) }

func settingKey(name string) []byte { return stringKey(tableSettings, name) }

// A pebbleLogger passes on Pebble's errors and drops its reports of routine work.
type pebbleLogger struct{ log *slog.Logger }

func (pebbleLogger) Infof(string, ...any) {}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("Cannot write index", "cause", fmt.Sprintf(format, args...))
}

// Fatalf is called when Pebble cannot go on, such as after a failed write of its
// log: from then on nothing could be acknowledged truthfully.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	panic("BUG or failing disk: index: " + fmt.Sprintf(format, args...))
}
