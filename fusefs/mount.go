package fusefs

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Limits told to the kernel.
const (
	maxWrite      = 1 << 20
	maxBackground = 128
	maxInflight   = 256 << 20 // bytes of requests held at once
)

// checkDirs refuses a mount point that overlaps the state directory: this
// process must never read its own mount.
func checkDirs(state, mountpoint string) error {
	a, err1 := filepath.Abs(state)
	b, err2 := filepath.Abs(mountpoint)
	if err := errors.Join(err1, err2); err != nil || state == "" || mountpoint == "" {
		return fmt.Errorf("cannot mount %q with state %q: %w", mountpoint, state, errors.Join(err, fs.ErrInvalid))
	}
	// The mount may be served from a place inside the state directory, but not
	// from where its own files are, nor may it cover the state.
	for _, own := range []string{a + "/index", a + "/cache"} {
		if within(own, b) || within(b, own) {
			return fmt.Errorf("cannot mount on %s: it overlaps %s: %w", mountpoint, own, fs.ErrInvalid)
		}
	}
	return nil
}

// within says whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// mount clears a dead mount, mounts and starts serving.
func (f *FS) mount() error {
	if err := ClearDead(f.opts.Mountpoint); err != nil {
		return err
	}
	var raw fuse.RawFileSystem = &rawFS{fuse.NewDefaultRawFileSystem(), f}
	if f.opts.wrap != nil {
		raw = f.opts.wrap(raw)
	}
	server, err := newServer(raw, f.opts.Mountpoint, f.mountOptions())
	if err != nil {
		return fmt.Errorf("cannot mount %s: %w", f.opts.Mountpoint, err)
	}
	f.server = server
	if g := f.opts.Guard; g != nil {
		if err := g.watch(f.opts.Mountpoint); err != nil {
			return errors.Join(err, f.unmount())
		}
	}
	f.probePassthrough()
	f.notify.start(server)
	f.group.Go(func() error {
		server.Serve()
		f.notify.setUnmounted()
		return nil
	})
	if err := server.WaitMount(); err != nil {
		return errors.Join(fmt.Errorf("cannot mount %s: %w", f.opts.Mountpoint, err), f.unmount())
	}
	return nil
}

// newServer mounts, and keeps the connection from the processes that this one
// starts: as long as one of them had it, the death of this process would not end
// it, and everybody who uses the mount would hang.
func newServer(raw fuse.RawFileSystem, mountpoint string, o *fuse.MountOptions) (*fuse.Server, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	server, err := fuse.NewServer(raw, mountpoint, o)
	if err != nil {
		return nil, err
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, errors.Join(err, server.Unmount())
	}
	for _, fd := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && name == "/dev/fuse" {
			number, _ := strconv.Atoi(fd.Name())
			unix.CloseOnExec(number)
		}
	}
	return server, nil
}

func (f *FS) mountOptions() *fuse.MountOptions {
	return &fuse.MountOptions{
		AllowOther:              true,
		Options:                 []string{"default_permissions"},
		FsName:                  "berth",
		Name:                    "berth",
		MaxWrite:                maxWrite,
		MaxBackground:           maxBackground,
		MaxInflightRequestBytes: maxInflight,
		MaxStackDepth:           1,
		DirectMountStrict:       true, // the flags' default is nosuid, nodev
		IDMappedMount:           f.opts.IDMapped,
		Debug:                   f.opts.Debug,
		Logger:                  log.New(slogWriter{f.log}, "", 0),
		// O_TRUNC in one request spares fetching content that is thrown away.
		ExtraCapabilities: fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_HANDLE_KILLPRIV_V2,
		PanicHandler: func(v any) fuse.Status {
			f.log.Error("Cannot serve a request: BUG", "panic", v, "stack", string(debug.Stack()))
			return fuse.EIO
		},
	}
}

// probePassthrough finds out once whether the kernel takes backing files of this
// cache.
func (f *FS) probePassthrough() {
	if f.opts.NoPassthrough || f.server.KernelSettings().Flags64()&fuse.CAP_PASSTHROUGH == 0 {
		return
	}
	temp, err := f.cache.Temp()
	if err != nil {
		return
	}
	defer os.Remove(temp.Name())
	defer temp.Close()
	id, errno := f.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(temp.Fd())})
	if errno != 0 {
		f.log.Info("Content goes through this process, the kernel takes no backing files here", "cache", f.cache.Dir(), "cause", errno)
		return
	}
	f.server.UnregisterBackingFd(id)
	f.passthrough.Store(true)
}

// unmount detaches the mount if it is there and ends the kernel's connection, so
// that the server ends too: the mount may live on in other mount namespaces, of
// which any process can have made one since.
func (f *FS) unmount() error {
	if f.server == nil {
		return nil
	}
	err := unix.Unmount(f.opts.Mountpoint, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) { // not mounted any more
		return fmt.Errorf("cannot unmount %s: %w", f.opts.Mountpoint, err)
	}
	return nil
}

// ClearDead detaches mounts on a directory whose server is gone. A live mount is
// refused with an error matching fs.ErrExist.
func ClearDead(mountpoint string) error {
	for {
		// Unlike a stat, which the kernel may answer from its cache, this asks the server.
		var st unix.Statfs_t
		err := ignoringEINTR(func() error { return unix.Statfs(mountpoint, &st) })
		switch {
		case errors.Is(err, syscall.ENOTCONN), errors.Is(err, syscall.ECONNABORTED):
			if err := unix.Unmount(mountpoint, unix.MNT_DETACH); err != nil {
				return fmt.Errorf("cannot clear dead mount %s: %w", mountpoint, err)
			}
			continue
		case err != nil:
			return fmt.Errorf("cannot mount on %s: %w", mountpoint, err)
		}
		info, err := os.Stat(mountpoint)
		switch {
		case err != nil:
			return fmt.Errorf("cannot mount on %s: %w", mountpoint, err)
		case !info.IsDir():
			return fmt.Errorf("cannot mount on %s: %w", mountpoint, syscall.ENOTDIR)
		case st.Type == unix.FUSE_SUPER_MAGIC && isMountpoint(mountpoint, info):
			return fmt.Errorf("cannot mount on %s: a FUSE file system is mounted there already: %w", mountpoint, fs.ErrExist)
		}
		return nil
	}
}

func isMountpoint(path string, info fs.FileInfo) bool {
	parent, err := os.Stat(filepath.Dir(path))
	return err == nil && parent.Sys().(*syscall.Stat_t).Dev != info.Sys().(*syscall.Stat_t).Dev
}

// A slogWriter passes on what go-fuse logs.
type slogWriter struct{ log *slog.Logger }

func (w slogWriter) Write(p []byte) (int, error) {
	w.log.Debug("FUSE server", "says", strings.TrimSpace(string(p)))
	return len(p), nil
}
