package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func checkRights(context.Context, *upConfig) finding {
	if os.Geteuid() != 0 {
		return fail(fmt.Sprintf("this is uid %d", os.Geteuid()), "berth up mounts file systems, which only root may do",
			"run it as root, for example with sudo")
	}
	return ok("root", "file systems can be mounted; the gateway runs as a user without rights")
}

func checkFuse(context.Context, *upConfig) finding {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fail(err.Error(), "the file system cannot be mounted",
			"load the module (modprobe fuse); in a container give it the device /dev/fuse and the capability SYS_ADMIN")
	}
	f.Close()
	return ok("/dev/fuse can be opened", "the bucket can be mounted")
}

// A kernelVersion is the first two numbers of a kernel's release.
type kernelVersion struct{ major, minor int }

func (v kernelVersion) before(o kernelVersion) bool {
	return v.major < o.major || v.major == o.major && v.minor < o.minor
}

// parseKernel reads a release such as "6.1.0-13-amd64".
func parseKernel(release string) (kernelVersion, error) {
	var v kernelVersion
	if _, err := fmt.Sscanf(release, "%d.%d", &v.major, &v.minor); err != nil {
		return v, fmt.Errorf("cannot read kernel release %q: %w", release, fs.ErrInvalid)
	}
	return v, nil
}

func kernel() (kernelVersion, string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return kernelVersion{}, "", fmt.Errorf("cannot ask for the kernel's release: %w", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	v, err := parseKernel(release)
	return v, release, err
}

// checkPassthrough looks at the kernel and at the file system of the cache.
func checkPassthrough(_ context.Context, conf *upConfig) finding {
	const slow = "reads and writes of open files go through berth: all is right, but slower"
	v, release, err := kernel()
	if err != nil {
		return warn(err.Error(), slow, "use a Linux kernel from 6.9 on")
	}
	if v.before(kernelVersion{6, 9}) {
		return warn("kernel "+release, slow, "use a Linux kernel from 6.9 on")
	}
	name, err := fileSystemOf(conf.State)
	if err != nil {
		return warn(err.Error(), slow, "give a state directory that can be read")
	}
	switch name {
	case "overlay":
		return warn(fmt.Sprintf("kernel %s, the cache on %s", release, name), slow,
			"keep the state directory on a disk: --state on ext4, XFS or btrfs; in a container, on a volume")
	case "fuse":
		return fail("the cache would be on a FUSE file system", "berth must not keep its cache on another FUSE file system",
			"give --state a directory on a local disk")
	case "tmpfs":
		return warn(fmt.Sprintf("kernel %s, the cache on %s", release, name), "open files are as fast as on the disk, but what is not uploaded is lost when the host ends",
			"keep the state directory on a disk: --state on ext4, XFS or btrfs")
	}
	return ok(fmt.Sprintf("kernel %s, the cache on %s", release, name), "open files are read and written as fast as on the disk itself")
}

// fileSystemOf names the type of the file system that the path, or its nearest
// parent that exists, is on.
func fileSystemOf(path string) (string, error) {
	st, err := statfsNearest(path)
	if err != nil {
		return "", err
	}
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.TMPFS_MAGIC: "tmpfs", unix.FUSE_SUPER_MAGIC: "fuse",
		unix.NFS_SUPER_MAGIC: "nfs", unix.F2FS_SUPER_MAGIC: "f2fs",
	}
	if name := names[int64(st.Type)]; name != "" {
		return name, nil
	}
	return fmt.Sprintf("file system type %#x", st.Type), nil
}

func statfsNearest(path string) (unix.Statfs_t, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(path, &st)
		if err != unix.ENOENT || path == "/" {
			if err != nil {
				return st, fmt.Errorf("cannot look at the file system of %s: %w", path, err)
			}
			return st, nil
		}
		path = filepath.Dir(path)
	}
}

func checkIDMap(context.Context, *upConfig) finding {
	v, release, err := kernel()
	if err != nil || v.before(kernelVersion{6, 12}) {
		return warn("kernel "+release, "FUSE mounts cannot be id-mapped: the gateway runs with the machines' user id instead of one of its own",
			"use a Linux kernel from 6.12 on")
	}
	return ok("kernel "+release, "the gateway reaches the files as a user of its own")
}

// checkPropagation tries in a mount namespace of its own what late binding
// rests on: a mount made in a shared directory appears in a bind mount of it.
func checkPropagation(context.Context, *upConfig) finding {
	result := make(chan error, 1)
	go onDisposableThread(func() { result <- tryPropagation() })
	if err := <-result; err != nil {
		return fail(err.Error(), "files cannot be brought into a machine that already runs",
			"in a container give it the capability SYS_ADMIN and no seccomp or AppArmor profile that forbids mount")
	}
	return ok("a mount in a shared directory appears in its slaves", "files can be brought into a machine that already runs")
}

// onDisposableThread runs f on a thread that ends after it, so that f may leave
// the process's namespaces. The first thread cannot end, and /proc/self shows
// its namespaces: it is left out. It is called as a goroutine.
func onDisposableThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f() // returning locked ends the thread
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		onDisposableThread(f) // on another thread: this one is taken
	}()
	<-done
	runtime.UnlockOSThread()
}

func tryPropagation() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("cannot make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	dir, err := os.MkdirTemp("", "berth-doctor-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := unix.Mount("berth-doctor", dir, "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf("cannot mount a tmpfs: %w", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	host, machine := filepath.Join(dir, "host"), filepath.Join(dir, "machine")
	for _, d := range []string{host, machine, filepath.Join(host, "home")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		source, target, fstype string
		flags                  uintptr
	}{
		{host, host, "", unix.MS_BIND},
		{"", host, "", unix.MS_SHARED},
		{host, machine, "", unix.MS_BIND},
		{"", machine, "", unix.MS_SLAVE},
		{"berth-doctor", filepath.Join(host, "home"), "tmpfs", 0}, // the late one
	} {
		if err := unix.Mount(m.source, m.target, m.fstype, m.flags, ""); err != nil {
			return fmt.Errorf("cannot mount: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(host, "home", "probe"), nil, 0o600); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(machine, "home", "probe")); err != nil {
		return fmt.Errorf("a mount in a shared directory does not appear in its slave: %w", err)
	}
	return nil
}

func checkStateDir(_ context.Context, conf *upConfig) finding {
	path, err := resolveParent(conf.State)
	if err == nil {
		err = checkPlace(path)
	}
	if err != nil {
		return fail(fmt.Sprintf("%s: %v", conf.State, err), "berth up does not start with it", "give another directory with --state")
	}
	return ok(path, "it can be used")
}

func checkDisk(_ context.Context, conf *upConfig) finding {
	st, err := statfsNearest(conf.State)
	if err != nil {
		return fail(err.Error(), "berth up does not start with it", "give another directory with --state")
	}
	free := st.Bavail * uint64(st.Bsize)
	found := fmt.Sprintf("%.1f GiB free for %s", gib(free), conf.State)
	const remedy = "free some space, or give --state a directory on a larger disk"
	switch {
	case free < 1<<30:
		return fail(found, "there is no room for the index and for what is not uploaded yet", remedy)
	case st.Files > 0 && st.Ffree < 100_000:
		return fail(fmt.Sprintf("%d free inodes for %s", st.Ffree, conf.State), "each cached file needs one", remedy)
	case free < 10<<30:
		return warn(found, "little is cached, and writes end with ENOSPC when uploads cannot keep up", remedy)
	}
	return ok(found, "there is room for cached files and for what is not uploaded yet")
}

func gib(n uint64) float64 { return float64(n) / (1 << 30) }

func checkMemory(context.Context, *upConfig) finding {
	available, err := memory("MemAvailable")
	if err != nil {
		return warn(err.Error(), "it is not known how many machines fit", "mount /proc")
	}
	found := fmt.Sprintf("%.1f GiB available", gib(available))
	if available < 3<<30 {
		return warn(found, "a machine may use up to 2 GiB: not even one at work fits for sure", "run fewer other things, or take a larger host")
	}
	return ok(found, fmt.Sprintf("%d machines fit even if each uses all of its 2 GiB", (available-1<<30)/(2<<30)))
}

// memory returns a field of /proc/meminfo in bytes.
func memory(field string) (uint64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("cannot measure memory: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		rest, isIt := strings.CutPrefix(line, field+":")
		if !isIt {
			continue
		}
		var kib uint64
		if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
			return 0, fmt.Errorf("cannot measure memory: %w", err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("cannot measure memory: /proc/meminfo has no %s: %w", field, fs.ErrNotExist)
}

// checkInotify looks at limits that all machines share: their processes have one uid.
func checkInotify(context.Context, *upConfig) finding {
	instances, err1 := readNumber("/proc/sys/fs/inotify/max_user_instances")
	watches, err2 := readNumber("/proc/sys/fs/inotify/max_user_watches")
	if err := errors.Join(err1, err2); err != nil {
		return warn(err.Error(), "it is not known whether dev servers in machines can watch files", "mount /proc")
	}
	found := fmt.Sprintf("%d instances and %d watches for each user", instances, watches)
	if instances < 1024 || watches < 131072 {
		return warn(found, "all machines share them: with many dev servers at work some cannot watch their files",
			"sysctl -w fs.inotify.max_user_instances=8192 fs.inotify.max_user_watches=1048576")
	}
	return ok(found, "dev servers in many machines can watch their files")
}

func readNumber(name string) (int, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

func checkOpenFiles(context.Context, *upConfig) finding {
	limit, err := raiseOpenFiles()
	if err != nil {
		return warn(err.Error(), "it is not known how many files can be open", "look at ulimit -n")
	}
	found := fmt.Sprintf("up to %d in each process", limit)
	if limit < 65536 {
		return warn(found, "each open file of a machine is one of berth's, too: with many machines at work some opens are refused",
			"ulimit -Hn 1048576 before the start, or LimitNOFILE=1048576 in a systemd unit")
	}
	return ok(found, "each open file of a machine is one of berth's, too")
}

// raiseOpenFiles lets this process, and what it starts, have as many open files
// as the kernel allows, or as its hard limit does where that cannot be raised.
func raiseOpenFiles() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("cannot read the limit of open files: %w", err)
	}
	if most, err := readNumber("/proc/sys/fs/nr_open"); err == nil {
		all := unix.Rlimit{Cur: uint64(most), Max: uint64(most)}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &all) == nil {
			return all.Cur, nil
		}
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("cannot raise the limit of open files: %w", err)
	}
	return limit.Cur, nil
}
