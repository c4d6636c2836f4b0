package fusefs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fsxOperations are drawn with equal chance.
var fsxOperations = []struct {
	name string
	do   func(x *fsxRun, f *fsxFile) error
}{
	{"write", (*fsxRun).write}, {"write", (*fsxRun).write}, {"read", (*fsxRun).read}, {"append", (*fsxRun).append},
	{"mapped read", (*fsxRun).mapRead}, {"mapped write", (*fsxRun).mapWrite}, {"store through a held mapping", (*fsxRun).storeHeld},
	{"truncate", (*fsxRun).truncate}, {"truncate by name", (*fsxRun).truncatePath}, {"open with O_TRUNC", (*fsxRun).openTrunc},
	{"punch", (*fsxRun).punch}, {"zero range", (*fsxRun).zeroRange}, {"fallocate", (*fsxRun).fallocate},
	{"copy_file_range", (*fsxRun).copyRange}, {"copy_file_range", (*fsxRun).copyRange},
	{"close and open", (*fsxRun).reopen}, {"fsync", (*fsxRun).fsync}, {"replace by rename", (*fsxRun).replace}, {"seek", (*fsxRun).seek},
}

func (x *fsxRun) write(f *fsxFile) error {
	at, n := x.span(f, true)
	data := x.bytes(n)
	if done, err := unix.Pwrite(f.fd, data, int64(at)); err != nil || done != n {
		return fmt.Errorf("wrote %d of %d bytes: %w", done, n, err)
	}
	f.grow(at + n)
	copy(f.model[at:], data)
	return nil
}

func (x *fsxRun) read(f *fsxFile) error {
	at, n := x.span(f, false)
	return f.check(at, n)
}

func (x *fsxRun) append(f *fsxFile) error {
	n := min(1+x.rand.IntN(4096), fsxMaxSize-len(f.model))
	data := x.bytes(n)
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	f.model = append(f.model, data...)
	return errors.Join(err, file.Close())
}

func (x *fsxRun) mapRead(f *fsxFile) error {
	at, n := x.span(f, false)
	return f.mapped(at, n, unix.PROT_READ, func(m []byte) error { return f.same(at, m) })
}

func (x *fsxRun) mapWrite(f *fsxFile) error {
	at, n := x.span(f, false)
	data := x.bytes(n)
	copy(f.model[at:], data)
	return f.mapped(at, n, unix.PROT_READ|unix.PROT_WRITE, func(m []byte) error {
		copy(m, data)
		if x.rand.IntN(2) == 0 {
			return nil
		}
		x.say(", msync")
		return unix.Fsync(f.fd) // Go's Msync wants the page's start; this writes all of it
	})
}

// storeHeld stores through a mapping that stays over other operations and over the
// close of what it was made with.
func (x *fsxRun) storeHeld(f *fsxFile) error {
	if f.held == nil || x.rand.IntN(8) == 0 {
		if err := f.unhold(); err != nil || len(f.model) == 0 {
			return err
		}
		m, err := unix.Mmap(f.fd, 0, len(f.model), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		f.held = m
	}
	at := x.rand.IntN(len(f.held))
	data := x.bytes(min(len(f.held)-at, 5000))
	x.say("%d bytes at %d", len(data), at)
	copy(f.held[at:], data)
	copy(f.model[at:], data)
	if x.rand.IntN(3) == 0 {
		x.say(", msync")
		return unix.Msync(f.held, unix.MS_SYNC)
	}
	return nil
}

func (x *fsxRun) length(f *fsxFile) (int, error) {
	n := x.rand.IntN(fsxMaxSize)
	if x.rand.IntN(6) == 0 {
		n = 0
	}
	x.say("to %d bytes", n)
	return n, f.resize(n)
}

func (x *fsxRun) truncate(f *fsxFile) error {
	n, err := x.length(f)
	return errors.Join(err, unix.Ftruncate(f.fd, int64(n)))
}

func (x *fsxRun) truncatePath(f *fsxFile) error {
	n, err := x.length(f)
	return errors.Join(err, unix.Truncate(f.path, int64(n)))
}

func (x *fsxRun) openTrunc(f *fsxFile) error {
	return errors.Join(f.resize(0), unix.Close(f.fd), f.open(unix.O_TRUNC))
}

func (x *fsxRun) punch(f *fsxFile) error {
	at, n := x.span(f, true)
	if at < len(f.model) {
		clear(f.model[at:min(at+n, len(f.model))])
	}
	return unix.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(at), int64(n))
}

func (x *fsxRun) zeroRange(f *fsxFile) error {
	at, n := x.span(f, true)
	flags := uint32(unix.FALLOC_FL_ZERO_RANGE)
	if x.rand.IntN(2) == 0 {
		x.say(", size kept")
		flags |= unix.FALLOC_FL_KEEP_SIZE
	} else {
		f.grow(at + n)
	}
	if at < len(f.model) {
		clear(f.model[at:min(at+n, len(f.model))])
	}
	return unix.Fallocate(f.fd, flags, int64(at), int64(n))
}

func (x *fsxRun) fallocate(f *fsxFile) error {
	at, n := x.span(f, true)
	f.grow(at + n)
	return unix.Fallocate(f.fd, 0, int64(at), int64(n))
}

// copyRange copies from a file to another, or within one where it does not overlap.
func (x *fsxRun) copyRange(f *fsxFile) error {
	from := x.files[x.rand.IntN(len(x.files))]
	at, n := x.span(from, false)
	to := x.rand.IntN(fsxMaxSize)
	if n = min(n, fsxMaxSize-to); n == 0 || from == f && to < at+n && at < to+n {
		return nil
	}
	x.say(" of %s, %d of them, to %d", from.path, n, to)
	data := append([]byte{}, from.model[at:at+n]...)
	f.grow(to + n)
	copy(f.model[to:], data)
	src, dst := int64(at), int64(to)
	for n > 0 {
		done, err := unix.CopyFileRange(from.fd, &src, f.fd, &dst, n, 0)
		if err != nil || done == 0 {
			return fmt.Errorf("%d bytes are left: %w", n, err)
		}
		n -= done
	}
	return nil
}

func (x *fsxRun) reopen(f *fsxFile) error { return errors.Join(unix.Close(f.fd), f.open(0)) }

func (x *fsxRun) fsync(f *fsxFile) error {
	if x.rand.IntN(2) == 0 {
		return unix.Fdatasync(f.fd)
	}
	return unix.Fsync(f.fd)
}

// replace writes a new file and renames it over the old, as editors do.
func (x *fsxRun) replace(f *fsxFile) error {
	data := x.bytes(x.rand.IntN(fsxMaxOp))
	if err := f.resize(0); err != nil {
		return err
	}
	f.model = data
	return errors.Join(os.WriteFile(f.path+".tmp", data, 0o644), os.Rename(f.path+".tmp", f.path), unix.Close(f.fd), f.open(0))
}

// seek walks over data and holes: what is called a hole must be zeros.
func (x *fsxRun) seek(f *fsxFile) error {
	for at := int64(0); at < int64(len(f.model)); {
		data, err := unix.Seek(f.fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			data, err = int64(len(f.model)), nil
		}
		if err != nil || data < at || data > int64(len(f.model)) {
			return fmt.Errorf("data after %d is at %d: %w", at, data, err)
		}
		for i, c := range f.model[at:data] {
			if c != 0 {
				return fmt.Errorf("byte %d is in a hole, want %#x", at+int64(i), c)
			}
		}
		if data == int64(len(f.model)) {
			return nil
		}
		hole, err := unix.Seek(f.fd, data, unix.SEEK_HOLE)
		if err != nil || hole <= data {
			return fmt.Errorf("the hole after %d is at %d: %w", data, hole, err)
		}
		at = hole
	}
	return nil
}
