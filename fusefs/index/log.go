package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// A batchLog keeps each batch until Pebble has it on disk. Pebble's own log
// writes from a goroutine of its own, whose turn every commit would wait for;
// here a commit is one write(2) of its caller, after which the death of the
// process loses nothing.
//
// It is two files in turn, each begun anew when the other is full and what it
// held is on disk. They are overwritten rather than made again, and grow by
// zeros, so that a sync has data to write and seldom anything of the file
// system. A file begins with a header and holds records; a record that is not
// the successor of the one before, or of another epoch, ends it. The epoch is
// Pebble's, and changes with each Open: what an earlier run left behind the end
// cannot be taken for more.
type batchLog struct {
	epoch uint64

	// mu protects the fields below. It is held over the write of one record.
	mu    sync.Mutex
	files [2]*os.File
	sizes [2]int64 // of the files
	cur   int      // the file that is written to
	off   int64    // where
	seq   uint64   // of the last record
	dirty [2]bool  // written to since its last sync

	syncing sync.Mutex // held over a sync; taken before mu
	synced  uint64     // up to this record all is on disk; protected by syncing
}

const (
	logFull  = 8 << 20 // a file that is longer is full
	logGrow  = 1 << 20 // a file grows by so much
	logMagic = "berthlog"

	logHeader    = len(logMagic) + 8 + 8 // and the epoch and the number of the first record
	recordHeader = 4 + 4 + 8             // checksum of what follows, length of the batch, number
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func logPath(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("batches-%d", i)) }

// replayLog calls apply for each record of an epoch with a number above after, in
// order, and returns the number of the last.
func replayLog(dir string, epoch, after uint64, apply func(seq uint64, batch []byte) error) (last uint64, err error) {
	var texts [2][]byte
	var first [2]uint64
	for i := range texts {
		text, err := os.ReadFile(logPath(dir, i))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		if len(text) >= logHeader && string(text[:len(logMagic)]) == logMagic && binary.BigEndian.Uint64(text[len(logMagic):]) == epoch {
			texts[i], first[i] = text[logHeader:], binary.BigEndian.Uint64(text[len(logMagic)+8:])
		}
	}
	if first[0] > first[1] {
		texts[0], texts[1], first[0], first[1] = texts[1], texts[0], first[1], first[0]
	}
	last = after
	for i, text := range texts {
		if first[i] > last+1 {
			break // the end of the other file did not reach the disk
		}
		for seq := first[i]; ; seq++ {
			batch, rest, ok := nextRecord(text, epoch, seq)
			if !ok {
				break
			}
			text = rest
			if seq <= last {
				continue
			}
			if err := apply(seq, batch); err != nil {
				return last, err
			}
			last = seq
		}
	}
	return last, nil
}

// nextRecord reads the record with a number.
func nextRecord(text []byte, epoch, seq uint64) (batch, rest []byte, ok bool) {
	if len(text) < recordHeader || binary.BigEndian.Uint64(text[8:]) != seq {
		return nil, nil, false
	}
	size := uint64(binary.BigEndian.Uint32(text[4:]))
	if size > uint64(len(text)-recordHeader) {
		return nil, nil, false
	}
	end := recordHeader + int(size)
	if recordSum(epoch, text[4:end]) != binary.BigEndian.Uint32(text) {
		return nil, nil, false
	}
	return text[recordHeader:end], text[end:], true
}

func recordSum(epoch uint64, record []byte) uint32 {
	var e [8]byte
	binary.BigEndian.PutUint64(e[:], epoch)
	return crc32.Update(crc32.Checksum(e[:], castagnoli), castagnoli, record)
}

// openLog begins a log after a record. All up to that one must be on disk
// elsewhere.
func openLog(dir string, epoch, seq uint64) (*batchLog, error) {
	l := &batchLog{epoch: epoch, seq: seq, synced: seq}
	for i := range l.files {
		f, err := os.OpenFile(logPath(dir, i), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.files[i] = f
		if l.sizes[i], err = f.Seek(0, io.SeekEnd); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	if err := l.beginLocked(0); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// beginLocked makes a file the one that is written to.
func (l *batchLog) beginLocked(i int) error {
	h := binary.BigEndian.AppendUint64([]byte(logMagic), l.epoch)
	h = binary.BigEndian.AppendUint64(h, l.seq+1)
	h = append(h, make([]byte, recordHeader)...) // no record follows yet
	if err := l.writeAt(i, h, 0); err != nil {
		return err
	}
	l.cur, l.off = i, int64(logHeader)
	return nil
}

func (l *batchLog) writeAt(i int, text []byte, off int64) error {
	if end := off + int64(len(text)); end > l.sizes[i] {
		grown := (end + logGrow) / logGrow * logGrow
		if _, err := l.files[i].WriteAt(make([]byte, grown-l.sizes[i]), l.sizes[i]); err != nil {
			return err
		}
		l.sizes[i] = grown
	}
	l.dirty[i] = true
	_, err := l.files[i].WriteAt(text, off)
	return err
}

// full says that begin should be called before more is added.
func (l *batchLog) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.off >= logFull
}

// begin turns to the other file. What that held must be on disk elsewhere.
func (l *batchLog) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beginLocked(1 - l.cur)
}

// next is the number that the next record gets; the caller keeps others from
// adding one.
func (l *batchLog) next() uint64 { return l.seq + 1 }

// last is the number of the last record.
func (l *batchLog) last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq
}

// add writes a record. When it returns nil the kernel has it.
func (l *batchLog) add(batch []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	record := make([]byte, recordHeader, recordHeader+len(batch))
	binary.BigEndian.PutUint32(record[4:], uint32(len(batch)))
	binary.BigEndian.PutUint64(record[8:], l.seq+1)
	record = append(record, batch...)
	binary.BigEndian.PutUint32(record, recordSum(l.epoch, record[4:]))
	if err := l.writeAt(l.cur, record, l.off); err != nil {
		return err
	}
	l.seq++
	l.off += int64(len(record))
	return nil
}

// sync returns when all that was added before the call is on disk. Callers at the
// same time share one sync of the disk, and none is made when nothing was added.
func (l *batchLog) sync() error {
	l.mu.Lock()
	want := l.seq
	l.mu.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.synced >= want {
		return nil
	}
	l.mu.Lock()
	upTo, dirty := l.seq, l.dirty
	l.dirty = [2]bool{}
	l.mu.Unlock()
	for i, f := range l.files {
		if !dirty[i] {
			continue
		}
		if err := fdatasync(f); err != nil {
			l.mu.Lock()
			l.dirty[0], l.dirty[1] = l.dirty[0] || dirty[0], l.dirty[1] || dirty[1]
			l.mu.Unlock()
			return err
		}
	}
	l.synced = upTo
	return nil
}

func fdatasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}

func (l *batchLog) close() error {
	var err error
	for _, f := range l.files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}
