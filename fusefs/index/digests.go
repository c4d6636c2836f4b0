package index

import "fmt"

// DigestBlock is the length of a block that has a digest of its own.
const DigestBlock = 8 << 20

// Digests tell one generation of a large file's content block by block.
type Digests struct {
	Gen  uint64
	Size int64
	Sums []byte // DigestSize bytes for each block
}

// DigestSize is the length of one digest.
const DigestSize = 16

// Sum returns the digest of a block, nil if there is no such block.
func (d *Digests) Sum(block int64) []byte {
	if from := block * DigestSize; from+DigestSize <= int64(len(d.Sums)) {
		return d.Sums[from : from+DigestSize]
	}
	return nil
}

// PutDigests keeps the digests of an inode; DeleteInode ends them.
func (b *Batch) PutDigests(ino Ino, d Digests) {
	e := newEncoder(32 + len(d.Sums))
	e.uint(d.Gen)
	e.int(d.Size)
	e.string(string(d.Sums))
	b.set(inoKey(tableDigests, ino), e.b)
}

// Digests returns those of an inode; ok is false when there are none.
func (db *DB) Digests(ino Ino) (d Digests, ok bool, err error) {
	v, ok, err := db.get(inoKey(tableDigests, ino))
	if err != nil || !ok {
		return Digests{}, false, err
	}
	dec := newDecoder(v)
	d = Digests{Gen: dec.uint(), Size: dec.int(), Sums: dec.bytes()}
	err = dec.err(fmt.Sprintf("digests of inode %d", ino))
	return d, err == nil, err
}
