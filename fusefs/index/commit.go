package index

import (
	"crypto/rand"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// Settings of the index's own: see batchLog.
const (
	settingEpoch  = "log epoch"
	settingLogged = "logged" // number of the last record that is in Pebble
)

// replay takes over the batches of an earlier run that Pebble had not on disk and
// begins the log of this one.
func (db *DB) replay(dir string) error {
	epoch, err1 := db.Setting(settingEpoch)
	applied, err2 := db.Setting(settingLogged)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	last, err := replayLog(dir, epoch, applied, func(_ uint64, batch []byte) error {
		b := db.pebble.NewBatch()
		defer b.Close()
		return errors.Join(b.SetRepr(batch), b.Commit(pebble.NoSync))
	})
	if err != nil {
		return err
	}
	var fresh [8]byte
	rand.Read(fresh[:])
	if err := errors.Join(db.pebble.Set(settingKey(settingEpoch), fresh[:], pebble.NoSync), db.pebble.Flush()); err != nil {
		return err
	}
	db.log, err = openLog(dir, binary.BigEndian.Uint64(fresh[:]), last)
	return err
}

// apply commits a batch: to the log, and then to Pebble, which has it in memory.
func (db *DB) apply(b *pebble.Batch) error {
	db.commit.Lock()
	defer db.commit.Unlock()
	if err := db.roomForCommit(); err != nil {
		return err
	}
	if db.log.full() {
		if err := db.withReserve(db.turnLog); err != nil {
			return err
		}
	}
	b.Set(settingKey(settingLogged), binary.BigEndian.AppendUint64(nil, db.log.next()), nil) // fails only after Close
	if err := db.withReserve(func() error { return db.log.add(b.Repr()) }); err != nil {
		return err
	}
	return b.Commit(pebble.NoSync)
}

// turnLog begins the log's other file if Pebble has on disk what that held, and
// has it write what the full one holds.
func (db *DB) turnLog() error {
	select {
	case <-db.flushed:
	default:
		if db.flushed != nil {
			return nil // the full one grows meanwhile
		}
	}
	if err := db.log.begin(); err != nil {
		return err
	}
	var err error
	db.flushed, err = db.pebble.AsyncFlush()
	return err
}

// applyOne commits one key.
func (db *DB) applyOne(key, value []byte) error {
	b := db.pebble.NewBatch()
	defer b.Close()
	b.Set(key, value, nil) // fails only after Close
	return db.apply(b)
}
