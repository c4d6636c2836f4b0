package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openDir returns a temporary directory whose parents others may pass through.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestStateIsLocked(t *testing.T) {
	path := filepath.Join(openDir(t), "state")
	s, err := openState(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openState(path); err == nil || !strings.Contains(err.Error(), "in use (berth up, pid") {
		t.Errorf("second open: got %v, want an error that names the holder", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = openState(path); err != nil {
		t.Fatalf("open after close: %v", err)
	}
	s.Close()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("got mode %v, %v; want 0711", info.Mode(), err)
	}
}

func TestStateRefusesPlaces(t *testing.T) {
	dir := openDir(t)
	mkdir := func(name string, mode os.FileMode) string {
		t.Helper()
		d := filepath.Join(dir, name)
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, mode); err != nil {
			t.Fatal(err)
		}
		return d
	}
	full := mkdir("full", 0o755)
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	closed := mkdir("closed", 0o700)
	other, err := openState(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}

	tests := []struct{ name, path, want string }{
		{"other files", full, "holds other files"},
		{"inside another state", filepath.Join(dir, "other", "run", "x"), "overlaps"},
		{"behind a closed directory", filepath.Join(closed, "state"), "chmod o+x"},
		{"dangling link", dangling, "symbolic link to nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := openState(tt.path)
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestStateFollowsLinks(t *testing.T) {
	dir := openDir(t)
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s, err := openState(filepath.Join(dir, "link", "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if want := filepath.Join(dir, "state"); s.path != want {
		t.Errorf("got path %s, want %s", s.path, want)
	}
}

func TestCredentialsAreKept(t *testing.T) {
	s, err := openState(filepath.Join(openDir(t), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first, err := s.loadCredentials("team", "ann")
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.loadCredentials("other", "bob")
	if err != nil || again != first {
		t.Errorf("got %+v, %v; want the first ones %+v", again, err, first)
	}
	secret, err := s.loadSecret()
	if err != nil || len(secret) != 64 {
		t.Fatalf("got secret of %d digits, %v; want 64", len(secret), err)
	}
	if same, err := s.loadSecret(); err != nil || same != secret {
		t.Errorf("got another secret, %v", err)
	}
	for _, name := range []string{s.secretFile(), s.credentialsFile()} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: got mode %v, %v; want 0600", name, info.Mode(), err)
		}
	}
	if err := os.WriteFile(s.secretFile(), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.loadSecret(); err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") {
		t.Errorf("got %v for a damaged secret, want an error that says what it must be", err)
	}
}

func TestClearMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("this test needs root")
	}
	// A space in the name is written as \040 in mountinfo.
	dir := filepath.Join(openDir(t), "a state")
	beside := dir + "-beside"
	for _, d := range []string{dir, beside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("berth-test", d, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(d, unix.MNT_DETACH) })
	}
	inner := filepath.Join(dir, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // one stacked on the other
		if err := unix.Mount("berth-test", inner, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := clearMounts(dir); n != 3 || err != nil {
		t.Errorf("got %d, %v; want 3 mounts cleared", n, err)
	}
	if left, err := mountsBelow(dir); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	if left, err := mountsBelow(beside); len(left) != 1 || err != nil {
		t.Errorf("the mount beside: got %v, %v; want it untouched", left, err)
	}
}
