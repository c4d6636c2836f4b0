package fusefs

import (
	"os"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
	"golang.org/x/sys/unix"

	"berth/fusefs/object/embedded/embeddedtest"
)

// wrongTest asks that a process's own record locks conflict with each other,
// which POSIX forbids and no native file system does; its authors leave it out
// of their native run too. TestLocks has what it meant to test.
const wrongTest = "FcntlFlockLocksFile"

func posix(t *testing.T, dir func(t *testing.T) string) {
	for name, test := range posixtest.All {
		if name != wrongTest {
			t.Run(name, func(t *testing.T) { test(t, dir(t)) })
		}
	}
}

// TestPosixNative proves the suite. One of its tests asks that the directory is
// not on the device of /etc.
func TestPosixNative(t *testing.T) {
	posix(t, func(t *testing.T) string {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	})
}

func TestPosix(t *testing.T) {
	posixOn(t, newRig(t))
}

func TestPosixThroughDaemon(t *testing.T) {
	posixOn(t, newRig(t, func(o *Options) { o.NoPassthrough = true }))
}

func TestPosixEmbeddedStore(t *testing.T) {
	store := embeddedtest.Open(t)
	posixOn(t, newRig(t, func(o *Options) { o.Store = store }))
}

// posixOn runs the suite on a mount, each test in a directory of its own. Uploads
// of the test before have ended: FdLeak counts the descriptors of this process,
// which is the server too.
func posixOn(t *testing.T, r *rig) {
	posix(t, func(t *testing.T) string {
		r.flush()
		dir := r.path(strings.ReplaceAll(t.Name(), "/", "-"))
		must(t, os.Mkdir(dir, 0o755))
		return dir
	})
}
