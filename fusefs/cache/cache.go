// Package cache keeps the content of files on the local disk: one sparse file
// for each inode whose content is here, under the inode's number.
//
// Terms. The content file of an inode is what its readers and writers work on.
// A temp is a file being filled; Adopt makes it the content file in one step.
// A snapshot is the frozen content of one generation of a file that is still
// being written to. What was set aside lies in the "before" directory under
// names that the caller chooses. Old content is what a truncated file had, kept
// until what was written instead is on the disk.
//
// The index says which content files are whole and which are clean; this package
// does not know. A content file without an inode is a leftover: see Sweep.
//
// Layout below the directory: xx/INO (decimal; xx are the last two hexadecimal
// digits of the number), tmp/, snap/INO.GEN, old/INO.GEN,
// before/NAME.
package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"berth/fusefs/index"
)

// Names of the directories below the cache's own.
const (
	tempDir   = "tmp"
	snapDir   = "snap"
	beforeDir = "before"
	oldDir    = "old"
)

// A Cache is a directory of content files. Its methods can be called from many
// goroutines; that no two of them change one inode's file at a time is the
// caller's affair.
type Cache struct {
	dir     string
	reflink bool
	blind   bool
	freezes bool
	temps   atomic.Uint64
}

// Open makes the directories that are missing, removes what an earlier process
// left in tmp, and learns what the file system below can do.
func Open(dir string) (*Cache, error) {
	c := &Cache{dir: dir}
	if err := os.RemoveAll(filepath.Join(dir, tempDir)); err != nil {
		return nil, fmt.Errorf("cannot open cache: %w", err)
	}
	names := []string{tempDir, snapDir, beforeDir, oldDir}
	for i := range 256 {
		names = append(names, fmt.Sprintf("%02x", i))
	}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, fmt.Errorf("cannot open cache: %w", err)
		}
	}
	if err := c.probe(); err != nil {
		return nil, fmt.Errorf("cannot open cache %s: %w", dir, err)
	}
	return c, nil
}

// probe learns whether files can share blocks and be frozen, and whether a store through a
// mapping moves a file's mtime: on tmpfs it does not.
func (c *Cache) probe() error {
	var st unix.Statfs_t
	if err := unix.Statfs(c.dir, &st); err != nil {
		return err
	}
	c.blind = st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC
	src, err := c.Temp()
	if err != nil {
		return err
	}
	defer discard(src)
	dst, err := c.Temp()
	if err != nil {
		return err
	}
	defer discard(dst)
	if _, err := src.Write(make([]byte, 4096)); err != nil {
		return err
	}
	c.reflink = unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil
	c.freezes = canFreeze(src)
	return nil
}

// Dir returns the cache's directory.
func (c *Cache) Dir() string { return c.dir }

// Reflink says whether clones share blocks and are exact at one instant.
func (c *Cache) Reflink() bool { return c.reflink }

// Blind says that a file's times do not tell whether it was changed through a
// mapping, so that each one that was open for writing counts as changed.
func (c *Cache) Blind() bool { return c.blind }

// Path returns where the content file of an inode is or would be.
func (c *Cache) Path(ino index.Ino) string {
	var b [3]byte
	const hex = "0123456789abcdef"
	b[0], b[1], b[2] = hex[ino>>4&15], hex[ino&15], '/'
	return c.dir + "/" + string(b[:]) + strconv.FormatUint(uint64(ino), 10)
}

// Open opens the content file with the flags of open(2), never making it. An
// inode without one is fs.ErrNotExist.
func (c *Cache) Open(ino index.Ino, flags int) (*os.File, error) {
	return openFile(c.Path(ino), flags&^unix.O_CREAT)
}

// Create makes an empty content file, or empties the one that is there, and
// opens it for reading and writing.
func (c *Cache) Create(ino index.Ino) (*os.File, error) {
	return openFile(c.Path(ino), unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC)
}

// New makes the content file of an inode that never had one and opens it for
// reading.
func (c *Cache) New(ino index.Ino) (*os.File, error) {
	return openFile(c.Path(ino), unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL)
}

// Remove removes the content file; that there is none is no error. Descriptors
// that are open keep their bytes.
func (c *Cache) Remove(ino index.Ino) error {
	return removeFile(c.Path(ino))
}

// Temp makes an empty file open for reading and writing, to be given to Adopt or
// Keep, or closed and removed by the caller.
func (c *Cache) Temp() (*os.File, error) {
	name := filepath.Join(c.dir, tempDir, strconv.FormatUint(c.temps.Add(1), 10))
	return openFile(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
}

// Adopt makes a temp the content file of an inode in one step, replacing one that
// is there; descriptors of that one keep the old bytes. It closes the temp and
// removes it if it fails. The bytes are not synced: after a power cut the content
// files of clean inodes are not to be trusted.
func (c *Cache) Adopt(temp *os.File, ino index.Ino) error {
	return c.place(temp, c.Path(ino))
}

func (c *Cache) place(temp *os.File, path string) error {
	err := temp.Close()
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot keep %s: %w", path, err), removeFile(temp.Name()))
	}
	return nil
}

// discard closes and removes a file that is not wanted.
func discard(f *os.File) {
	f.Close()
	os.Remove(f.Name())
}

// A Stat is what fstat(2) says of a file. Times are Unix nanoseconds.
type Stat struct {
	Size  int64
	Used  int64 // bytes of disk
	Mtime int64
	Ctime int64
	Atime int64
}

// Stat returns the attributes of an inode's content file.
func (c *Cache) Stat(ino index.Ino) (Stat, error) { return statPath(c.Path(ino)) }

func statPath(path string) (Stat, error) {
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Stat(path, &st) }); err != nil {
		return Stat{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return fromStat(&st), nil
}

// StatFile returns the attributes of an open file.
func StatFile(f *os.File) (Stat, error) {
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Fstat(int(f.Fd()), &st) }); err != nil {
		return Stat{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return fromStat(&st), nil
}

func fromStat(st *unix.Stat_t) Stat {
	return Stat{Size: st.Size, Used: st.Blocks * 512, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(), Atime: st.Atim.Nano()}
}

// Sweep calls f for each content file until f returns false. Files may come and
// go meanwhile.
func (c *Cache) Sweep(f func(ino index.Ino, st Stat) bool) error {
	for i := range 256 {
		names, err := readNames(filepath.Join(c.dir, fmt.Sprintf("%02x", i)))
		if err != nil {
			return fmt.Errorf("cannot sweep cache: %w", err)
		}
		for _, name := range names {
			n, err := strconv.ParseUint(name, 10, 64)
			if err != nil {
				continue
			}
			st, err := c.Stat(index.Ino(n))
			if err != nil {
				continue // removed since
			}
			if !f(index.Ino(n), st) {
				return nil
			}
		}
	}
	return nil
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// Free returns the bytes that may still be written to the cache's volume and the
// volume's size.
func (c *Cache) Free() (free, size int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(c.dir, &st); err != nil {
		return 0, 0, fmt.Errorf("cannot ask for free space of %s: %w", c.dir, err)
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}

func openFile(path string, flags int) (*os.File, error) {
	var fd int
	err := ignoringEINTR(func() (err error) {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func removeFile(path string) error {
	err := unix.Unlink(path)
	if err == unix.EPERM { // a process died while it was frozen
		if f, oerr := openFile(path, unix.O_RDONLY); oerr == nil {
			setImmutable(f, false)
			f.Close()
			err = unix.Unlink(path)
		}
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &fs.PathError{Op: "unlink", Path: path, Err: err}
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

func snapName(ino index.Ino, gen uint64) string {
	return strconv.FormatUint(uint64(ino), 10) + "." + strconv.FormatUint(gen, 10)
}

func splitSnapName(name string) (ino index.Ino, gen uint64, ok bool) {
	a, b, ok := strings.Cut(name, ".")
	n, err1 := strconv.ParseUint(a, 10, 64)
	gen, err2 := strconv.ParseUint(b, 10, 64)
	return index.Ino(n), gen, ok && err1 == nil && err2 == nil
}

// SetMtime sets the modification time, Unix nanoseconds, of an inode's content
// file: through a descriptor of it if open is not nil, as a file that lost its
// name needs.
func (c *Cache) SetMtime(ino index.Ino, open *os.File, mtime int64) error {
	path := c.Path(ino)
	if open != nil {
		path = "/proc/self/fd/" + strconv.Itoa(int(open.Fd()))
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime)}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, times, 0); err != nil {
		return &fs.PathError{Op: "utimes", Path: c.Path(ino), Err: err}
	}
	return nil
}
