package index

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
)

// Inode numbers are given out of blocks that are drawn by lot, so that those of two
// indexes do not meet: objects carry them, and an index that is made anew finds
// them there. With a thousand blocks in a bucket, a thousand million files, two
// meet once in 17,000 such buckets; then a file has another number after its index
// was lost, and no more.
const (
	blockBits = 20
	inoLease  = 1 << 12 // numbers reserved by one write
)

func blockOf(ino Ino) Ino { return ino >> blockBits }

// numbers are what NewIno gives out.
type numbers struct {
	next   Ino // to give out
	max    Ino // first that is not reserved on disk; at the end of its block a new one is drawn
	blocks map[Ino]bool
}

func blockSetting(block Ino) []byte { return settingKey(fmt.Sprintf("block/%x", uint64(block))) }

func (db *DB) loadNumbers(next Ino) error {
	db.numbers = numbers{next: next, max: next, blocks: make(map[Ino]bool)}
	return db.scan(settingKey("block/"), nil, func(_, v []byte) bool {
		if len(v) == 8 {
			db.numbers.blocks[Ino(binary.BigEndian.Uint64(v))] = true
		}
		return true
	})
}

// Gave says whether a number may have been given out by NewIno.
func (db *DB) Gave(ino Ino) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.numbers.blocks[blockOf(ino)]
}

// NewIno returns an inode number that was never used before, nor will be again
// after a crash.
func (db *DB) NewIno() (Ino, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	n := &db.numbers
	if n.next == n.max {
		if err := db.reserveLocked(); err != nil {
			return 0, fmt.Errorf("cannot reserve inode numbers: %w", err)
		}
	}
	ino := n.next
	n.next++
	return ino, nil
}

// reserveLocked makes numbers that can be given out. The reservation must be on
// disk before a number of it is used, also across a power cut, so that it is never
// given out twice.
func (db *DB) reserveLocked() error {
	n := &db.numbers
	batch := db.pebble.NewBatch()
	defer batch.Close()
	from, block := n.max, blockOf(n.max)
	fresh := from&(1<<blockBits-1) == 0
	if fresh {
		for block = 0; block == 0 || n.blocks[block]; {
			block = drawBlock()
		}
		from = block << blockBits
		batch.Set(blockSetting(block), binary.BigEndian.AppendUint64(nil, uint64(block)), nil)
	}
	batch.Set(settingKey("ino"), binary.BigEndian.AppendUint64(nil, uint64(from+inoLease)), nil)
	err := db.apply(batch)
	if err == nil {
		err = db.log.sync()
	}
	if err != nil {
		return err
	}
	if fresh {
		n.blocks[block] = true
	}
	n.next, n.max = from, from+inoLease
	return nil
}

func drawBlock() Ino {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return Ino(binary.BigEndian.Uint64(b[:])) & blockOf(MaxIno)
}
