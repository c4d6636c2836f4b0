package fusefs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Sizes of what fsx works on.
const (
	fsxFiles   = 3
	fsxMaxSize = 300 << 10
	fsxMaxOp   = 60 << 10
	fsxTold    = 12 // operations that a failure tells
)

// An fsxFile is a file and what it should hold.
type fsxFile struct {
	path  string
	fd    int
	model []byte
	held  []byte // a mapping that outlives its operation, of the first pages
}

// An fsxRun is a process that is not the server: it may map files of the mount.
type fsxRun struct {
	rand  *rand.Rand
	files []*fsxFile
	told  []string
}

// fsxForTest is the child's main.
func fsxForTest(args string) int {
	var dir, models string
	var seed uint64
	var ops int
	if _, err := fmt.Sscan(args, &dir, &models, &seed, &ops); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	x := &fsxRun{rand: rand.New(rand.NewPCG(seed, 0))}
	if err := x.run(dir, models, ops); err != nil {
		fmt.Fprintf(os.Stderr, "%v\nthe operations before it:\n  %s\n", err, strings.Join(x.told, "\n  "))
		return 1
	}
	return 0
}

func (x *fsxRun) run(dir, models string, ops int) error {
	for i := range fsxFiles {
		f := &fsxFile{path: filepath.Join(dir, fmt.Sprint("f", i)), fd: -1}
		if err := f.open(unix.O_CREAT); err != nil {
			return err
		}
		x.files = append(x.files, f)
	}
	for i := range ops {
		f := x.files[x.rand.IntN(len(x.files))]
		op := fsxOperations[x.rand.IntN(len(fsxOperations))]
		x.told = append(x.told, fmt.Sprintf("%d: %s of %s (%d bytes): ", i, op.name, filepath.Base(f.path), len(f.model)))
		if len(x.told) > fsxTold {
			x.told = x.told[1:]
		}
		if err := op.do(x, f); err != nil {
			return fmt.Errorf("operation %d, %s: %w", i, op.name, err)
		}
		if err := f.checkSize(); err != nil {
			return fmt.Errorf("after operation %d, %s: %w", i, op.name, err)
		}
		if i%50 == 0 {
			if err := f.check(0, len(f.model)); err != nil {
				return fmt.Errorf("after operation %d, %s: %w", i, op.name, err)
			}
		}
	}
	for _, f := range x.files {
		err := errors.Join(f.check(0, len(f.model)), f.unhold(), unix.Close(f.fd),
			os.WriteFile(filepath.Join(models, filepath.Base(f.path)), f.model, 0o600))
		if err != nil {
			return err
		}
	}
	return nil
}

// say adds to what is told of the operation under way.
func (x *fsxRun) say(format string, args ...any) {
	x.told[len(x.told)-1] += fmt.Sprintf(format, args...)
}

// span draws a part of a file: within what it has, or beyond.
func (x *fsxRun) span(f *fsxFile, beyond bool) (at, n int) {
	limit := len(f.model)
	if beyond {
		limit = fsxMaxSize
	}
	if limit == 0 {
		return 0, 0
	}
	at = x.rand.IntN(limit)
	n = min(1+x.rand.IntN(fsxMaxOp), limit-at)
	x.say("%d bytes at %d", n, at)
	return at, n
}

func (x *fsxRun) bytes(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(x.rand.Uint32())
	}
	return out
}

func (f *fsxFile) open(flags int) (err error) {
	f.fd, err = unix.Open(f.path, unix.O_RDWR|flags, 0o644)
	return err
}

// grow makes the model at least so long.
func (f *fsxFile) grow(n int) {
	if n > len(f.model) {
		f.model = append(f.model, make([]byte, n-len(f.model))...)
	}
}

func (f *fsxFile) checkSize() error {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return err
	}
	if st.Size != int64(len(f.model)) {
		return fmt.Errorf("%s has %d bytes, want %d", f.path, st.Size, len(f.model))
	}
	return nil
}

// check reads a part of the file and compares it.
func (f *fsxFile) check(at, n int) error {
	got := make([]byte, n)
	if done, err := unix.Pread(f.fd, got, int64(at)); err != nil || done != n {
		return fmt.Errorf("read %d of %d bytes at %d: %w", done, n, at, err)
	}
	return f.same(at, got)
}

func (f *fsxFile) same(at int, got []byte) error {
	if want := f.model[at : at+len(got)]; !slices.Equal(got, want) {
		return fmt.Errorf("%s from byte %d on: %s", f.path, at, fsxDifference(got, want))
	}
	return nil
}

func (f *fsxFile) unhold() error {
	if f.held == nil {
		return nil
	}
	held := f.held
	f.held = nil
	return unix.Munmap(held)
}

// mapped runs do with a part of the file in a mapping.
func (f *fsxFile) mapped(at, n, prot int, do func(m []byte) error) error {
	if n == 0 {
		return nil
	}
	from := at &^ (os.Getpagesize() - 1)
	m, err := unix.Mmap(f.fd, int64(from), at+n-from, prot, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	return errors.Join(do(m[at-from:]), unix.Munmap(m))
}

// resize is what changes the length of the model; a mapping of what is no more
// there may not be touched.
func (f *fsxFile) resize(n int) error {
	err := f.unhold()
	f.grow(n)
	f.model = f.model[:n]
	return err
}
