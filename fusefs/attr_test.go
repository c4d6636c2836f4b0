package fusefs

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// modes are the two ways to serve content.
var modes = map[string]func(*Options){
	"passthrough": func(*Options) {},
	"mediated":    func(o *Options) { o.NoPassthrough = true },
}

// inModes runs a test on a mount of each mode.
func inModes(t *testing.T, test func(t *testing.T, r *rig)) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) { test(t, newRig(t, mode)) })
	}
}

func statOf(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return info.Sys().(*syscall.Stat_t)
}

// forget makes an FS lose all that it has on this machine: what comes after it is
// there is from the bucket.
func (r *rig) forget() {
	r.t.Helper()
	r.close()
	must(r.t, os.RemoveAll(r.state))
	must(r.t, os.Mkdir(r.state, 0o755))
	r.open()
}

// A write by somebody without the right to keep them takes setuid and setgid away,
// also when the kernel writes past this process.
func TestWriteDropsPrivileges(t *testing.T) {
	inModes(t, func(t *testing.T, r *rig) {
		for what, how := range map[string]string{"write": "printf x >> f", "truncate": ": > f", "overwrite": "printf x | dd of=f conv=notrunc status=none"} {
			must(t, os.WriteFile(r.path("f"), []byte("content"), 0o777))
			must(t, os.Chmod(r.path("f"), 0o777|os.ModeSetuid|os.ModeSetgid))
			// The way to the mount is root's alone, so the user changes when it is there.
			cmd := exec.Command("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", how)
			cmd.Dir = r.dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if mode := statOf(t, r.path("f")).Mode & 0o7777; mode != 0o777 {
				t.Errorf("after %s: got mode %o, want 777", what, mode)
			}
		}
	})
}

// Times that were set stay, also from the bucket; else the access time is the
// modification time.
func TestAccessTime(t *testing.T) {
	r := newRig(t)
	at, mod := time.Unix(1_900_000_000, 123), time.Unix(1_950_000_000, 456)
	must(t, os.WriteFile(r.path("set"), nil, 0o644))
	must(t, os.WriteFile(r.path("plain"), nil, 0o644))
	must(t, os.Chtimes(r.path("set"), at, mod))
	check := func(when string) {
		t.Helper()
		if st := statOf(t, r.path("set")); st.Atim.Nano() != at.UnixNano() || st.Mtim.Nano() != mod.UnixNano() {
			t.Errorf("%s: got %d and %d, want %d and %d", when, st.Atim.Nano(), st.Mtim.Nano(), at.UnixNano(), mod.UnixNano())
		}
		if st := statOf(t, r.path("plain")); st.Atim != st.Mtim {
			t.Errorf("%s: got access at %v, change at %v, want the same", when, st.Atim, st.Mtim)
		}
	}
	check("at once")
	mod = time.Unix(1_960_000_000, 789)
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mod.UnixNano())}
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, r.path("set"), ts, 0))
	check("the modification time alone")
	r.forget()
	check("from the bucket")
}

// A directory has as many links as on ext4, whatever came and went in it.
func TestDirectoryLinks(t *testing.T) {
	r := newRig(t)
	native := t.TempDir()
	for _, dir := range []string{r.dir, native} {
		for i := range 6 {
			must(t, os.MkdirAll(fmt.Sprintf("%s/d/%d/sub", dir, i), 0o755))
		}
		must(t, os.WriteFile(dir+"/d/f", nil, 0o644))
		must(t, os.Remove(dir+"/d/0/sub"))
		must(t, os.Remove(dir+"/d/0"))
		must(t, os.Rename(dir+"/d/1", dir+"/d/2/moved"))
		must(t, syscall.Rename(dir+"/d/3/sub", dir+"/d/4/sub")) // in the place of another
		must(t, unix.Renameat2(unix.AT_FDCWD, dir+"/d/5", unix.AT_FDCWD, dir+"/d/f", unix.RENAME_EXCHANGE))
	}
	check := func(when string) {
		t.Helper()
		for _, path := range []string{"/d", "/d/2", "/d/2/moved", "/d/3", "/d/4", "/d/4/sub", "/d/f"} {
			if got, want := statOf(t, r.dir+path).Nlink, statOf(t, native+path).Nlink; got != want {
				t.Errorf("%s: %s has %d links, want %d", when, path, got, want)
			}
		}
	}
	check("at once")
	r.flush()
	r.forget()
	check("from the bucket")
}
