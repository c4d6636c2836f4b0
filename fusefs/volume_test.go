package fusefs

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/fusefs/object"
	"berth/fusefs/object/embedded/embeddedtest"
	"berth/fusefs/object/s3"
)

// newVolume makes a file system of a kind in an image file and mounts it.
func newVolume(t *testing.T, kind string, size int64) (dir string) {
	t.Helper()
	base := t.TempDir()
	image := filepath.Join(base, kind+".img")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, size))
	dir = filepath.Join(base, kind)
	must(t, os.Mkdir(dir, 0o755))
	makeFS(t, kind, image)
	mountImage(t, image, dir)
	return dir
}

func makeFS(t *testing.T, kind, image string) {
	t.Helper()
	quiet := map[string]string{"ext4": "-qF", "xfs": "-qf"}[kind]
	if out, err := exec.Command("mkfs."+kind, quiet, image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s: %v: %s", kind, err, out)
	}
}

// mountImage mounts an image file until the test ends.
func mountImage(t *testing.T, image, dir string) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Fatalf("mount %s: %v: %s", image, err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
			unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
}

// newBase makes a directory for serve whose state lies on a volume.
func newBase(t *testing.T, volume string) string {
	t.Helper()
	base := t.TempDir()
	must(t, os.Mkdir(filepath.Join(base, "mnt"), 0o755))
	must(t, os.MkdirAll(filepath.Join(volume, "state"), 0o755))
	must(t, os.Symlink(filepath.Join(volume, "state"), filepath.Join(base, "state")))
	t.Cleanup(func() { unix.Unmount(filepath.Join(base, "mnt"), unix.MNT_DETACH) })
	return base
}

// serveBucket starts a store that outlives the servers of a base.
func serveBucket(t *testing.T, base string) object.Store {
	t.Helper()
	o := embeddedtest.Start(t, t.TempDir())
	must(t, os.WriteFile(filepath.Join(base, "store"), []byte(o.URL), 0o600))
	s, err := s3.New(o)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// readTree returns the content of all regular files below a directory.
func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	tree := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		tree[strings.TrimPrefix(path, dir+"/")] = string(data)
		return err
	})
	must(t, err)
	return tree
}

// eachObject calls f with all that a bucket has, without berth's own.
func eachObject(t *testing.T, bucket object.Store, f func(key, content string)) {
	t.Helper()
	for after := ""; ; {
		page, err := bucket.List(context.Background(), object.ListOptions{After: after})
		must(t, err)
		for _, o := range page.Objects {
			if strings.HasPrefix(o.Key, ownPrefix+"/") || strings.HasSuffix(o.Key, "/") {
				continue
			}
			body, _, err := bucket.Get(context.Background(), o.Key, object.GetOptions{})
			must(t, err)
			data, err := io.ReadAll(body)
			must(t, err)
			must(t, body.Close())
			f(o.Key, string(data))
		}
		if page.Next == "" {
			return
		}
		after = page.Next
	}
}

// sameAsBucket compares what a tree had with the bucket.
func sameAsBucket(t *testing.T, tree map[string]string, bucket object.Store) {
	t.Helper()
	seen := make(map[string]bool)
	eachObject(t, bucket, func(key, content string) {
		seen[key] = true
		if want, ok := tree[key]; !ok {
			t.Errorf("the bucket has %q, which the tree has not", key)
		} else if content != want {
			t.Errorf("object %q: %d bytes differ from the file's %d", key, len(content), len(want))
		}
	})
	for key := range tree {
		if !seen[key] {
			t.Errorf("the bucket lacks %q", key)
		}
	}
}
