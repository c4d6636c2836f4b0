package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A stateDir is the locked state directory of an installation.
type stateDir struct {
	path string   // without symbolic links
	lock *os.File // holds the flock; the kernel gives it back when up dies
}

// The parts of a state directory that up itself uses.
func (s *stateDir) runDir() string          { return filepath.Join(s.path, "run") }
func (s *stateDir) logDir() string          { return filepath.Join(s.path, "log") }
func (s *stateDir) viewDir() string         { return filepath.Join(s.path, "view") }
func (s *stateDir) slotsDir() string        { return filepath.Join(s.path, "slots") }
func (s *stateDir) storeDir() string        { return filepath.Join(s.path, "store") }
func (s *stateDir) templateDir() string     { return filepath.Join(s.path, "template") }
func (s *stateDir) mountdSocket() string    { return filepath.Join(s.runDir(), "mountd.sock") }
func (s *stateDir) sandboxdSocket() string  { return filepath.Join(s.runDir(), "sandboxd.sock") }
func (s *stateDir) memberEnvFile() string   { return filepath.Join(s.runDir(), "member.env") }
func (s *stateDir) secretFile() string      { return filepath.Join(s.path, "secret") }
func (s *stateDir) credentialsFile() string { return filepath.Join(s.path, "credentials.json") }

const (
	lockFile = "lock"
	lockMark = "berth up, pid "
)

// openState makes the directory if need be, checks that it can be used, and
// locks it. While the state is open no other `berth up` can open it.
func openState(path string) (*stateDir, error) {
	path, err := resolveParent(path)
	if err != nil {
		return nil, fmt.Errorf("cannot use state directory: %w", err)
	}
	if err := checkPlace(path); err != nil {
		return nil, fmt.Errorf("cannot use state directory %s: %w", path, err)
	}
	if err := os.MkdirAll(path, 0o711); err != nil {
		return nil, fmt.Errorf("cannot make state directory: %w", err)
	}
	// The directory's own mode, not what the umask left of it: the gateway and
	// the machines' user pass through, nobody lists.
	if err := os.Chmod(path, 0o711); err != nil {
		return nil, fmt.Errorf("cannot make state directory: %w", err)
	}
	s := &stateDir{path: path}
	if err := s.takeLock(); err != nil {
		return nil, err
	}
	for dir, mode := range map[string]os.FileMode{s.runDir(): 0o711, s.logDir(): 0o700} {
		err := os.MkdirAll(dir, mode)
		if err == nil {
			err = os.Chmod(dir, mode)
		}
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("cannot make state directory: %w", err)
		}
	}
	return s, nil
}

// Close gives the lock back.
func (s *stateDir) Close() error { return s.lock.Close() }

func (s *stateDir) takeLock() error {
	f, err := os.OpenFile(filepath.Join(s.path, lockFile), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("cannot lock state directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		holder, _ := io.ReadAll(io.LimitReader(f, 64))
		return fmt.Errorf("cannot use state directory %s: it is in use (%s); stop that one, or choose another with --state: %w",
			s.path, strings.TrimSpace(string(holder)), err)
	}
	if err = f.Truncate(0); err == nil {
		_, err = fmt.Fprintf(f, lockMark+"%d\n", os.Getpid())
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("cannot lock state directory: %w", err)
	}
	s.lock = f
	return nil
}

// resolveParent returns the path without symbolic links, of which the last
// part need not exist yet.
func resolveParent(path string) (string, error) {
	path = filepath.Clean(path)
	real, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s is a symbolic link to nothing", path)
	}
	parent, err := resolveParent(filepath.Dir(path))
	return filepath.Join(parent, filepath.Base(path)), err
}

// checkPlace refuses a directory that would serve itself, that belongs to
// something else, or that the gateway cannot reach.
func checkPlace(path string) error {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case len(entries) > 0 && !isState(path):
		return errors.New("it holds other files and is not a berth's; give it an empty or a new directory")
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if isState(dir) {
			return fmt.Errorf("it overlaps with the state directory %s of another berth", dir)
		}
		if err := checkAncestor(dir); err != nil {
			return err
		}
		if dir == "/" {
			return nil
		}
	}
}

// isState tells a state directory from others by its lock file, which begins
// with lockMark, or is empty when up was killed as it made it.
func isState(dir string) bool {
	name := filepath.Join(dir, lockFile)
	if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() > 64 {
		return false
	}
	data, err := os.ReadFile(name)
	return err == nil && (len(data) == 0 || strings.HasPrefix(string(data), lockMark))
}

func checkAncestor(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // will be made
	}
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o001 == 0 {
		return fmt.Errorf("other users may not pass through %s (mode %04o), but the gateway runs as one: choose another directory, or chmod o+x %s",
			dir, info.Mode().Perm(), dir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("cannot look at the file system of %s: %w", dir, err)
	}
	if st.Type == unix.FUSE_SUPER_MAGIC {
		return fmt.Errorf("%s is on a FUSE file system; berth needs a local disk", dir)
	}
	return nil
}

// clearMounts detaches every mount at or below dir and returns how many there
// were. An outer mount takes those below it along: their paths may lead through
// a file system whose server is dead, where nothing can be looked up any more.
func clearMounts(dir string) (int, error) {
	cleared, tried := 0, 0
	for {
		points, err := mountsBelow(dir)
		if err != nil || len(points) == 0 {
			return cleared, err
		}
		cleared = max(cleared, len(points))
		// The first one has no other of them around it; one that is stacked on
		// it goes before it, under the same name.
		err = unix.Unmount(points[0], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		// It may have gone meanwhile, with a peer that it propagated to.
		gone := err == unix.EINVAL && len(points) != tried
		if err != nil && !gone {
			return cleared, fmt.Errorf("cannot unmount %s: %w", points[0], err)
		}
		tried = len(points)
	}
}

// mountsBelow lists the mount points at or below dir, as mountinfo
// orders them: parents before children.
func mountsBelow(dir string) ([]string, error) {
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cannot list mounts: %w", err)
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if p := unescape.Replace(fields[4]); p == dir || strings.HasPrefix(p, dir+"/") {
			points = append(points, p)
		}
	}
	return points, nil
}
