package fusefs

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/fusefs/object"
	"berth/fusefs/object/embedded/embeddedtest"
)

// A replay is a public bug report of another file system over a store, as a
// script that fails where the bug is. It runs in an empty directory of a mount,
// with an empty directory of the local disk as $T.
type replay struct {
	report string // such as s3fs#535
	script string
}

var long = flag.Bool("long", false, "replay bug reports at the size that they tell of")

// sized returns n, or in the long form as much as the report has.
func sized(n, report int) int {
	if *long {
		return report
	}
	return n
}

// prelude is what each script begins with.
const prelude = `
random() { head -c "$1" /dev/urandom; } # BYTES
export GIT_CONFIG_GLOBAL=$T/.gitconfig GIT_TERMINAL_PROMPT=0 HOME=$T
git config --global user.email a@b; git config --global user.name a
git config --global commit.gpgsign false; git config --global init.defaultBranch main
git config --global advice.detachedHead false
`

// TestReplays runs the scripts of all families on one mount over the embedded
// store. After each the bucket holds what the mount holds, and at the end, when
// all that is local was wiped, the mount shows the same again.
func TestReplays(t *testing.T) {
	store := embeddedtest.Open(t)
	r := newRig(t, func(o *Options) { o.Store = store })
	before := make(map[string][]string)
	for _, family := range []struct {
		name    string
		replays []replay
	}{
		{"rename", renameReplays()}, {"git", gitReplays()}, {"tools", toolReplays()}, {"data", dataReplays()}, {"names", nameReplays()},
	} {
		for _, p := range family.replays {
			dir := family.name + "-" + strings.NewReplacer("/", "-", "#", "-", " ", "").Replace(p.report)
			t.Run(family.name+"/"+p.report, func(t *testing.T) {
				begun := time.Now()
				must(t, os.Mkdir(r.path(dir), 0o755))
				runScript(t, r.path(dir), p.script)
				r.flush()
				before[dir] = sumsOf(t, r.path(dir))
				sameInBucket(t, r, dir)
				if took := time.Since(begun); took > 3*time.Second && !*long {
					t.Logf("%s took %v", p.report, took)
				}
			})
		}
	}
	r.close()
	must(t, os.RemoveAll(r.state))
	must(t, os.Mkdir(r.state, 0o755))
	r.open()
	for dir, want := range before {
		if got := sumsOf(t, r.path(dir)); !slices.Equal(got, want) {
			t.Errorf("%s after a cold start: %s", dir, firstDifference(got, want))
		}
	}
}

// runScript runs a script with its working directory on a mount.
func runScript(t *testing.T, dir, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", prelude+script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "T="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out[max(0, len(out)-4000):])
	}
}

// sumsOf describes all that is below a directory, content by its digest.
func sumsOf(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%q %v", strings.TrimPrefix(path, dir), info.Mode())
		switch {
		case info.Mode().IsRegular():
			sum, err := sumOf(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %d %s", info.Size(), info.ModTime().UnixNano(), sum)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		out = append(out, line)
		return nil
	}))
	return out
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return digest(f)
}

func digest(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), err
}

// sameInBucket checks that the store has exactly what a directory shows.
func sameInBucket(t *testing.T, r *rig, dir string) {
	t.Helper()
	want := treeKeys(t, r.path(dir))
	var got []string
	o := object.ListOptions{Prefix: dir + "/"}
	for {
		page, err := r.store.List(t.Context(), o)
		must(t, err)
		for _, info := range page.Objects {
			if key := strings.TrimPrefix(info.Key, dir+"/"); key != "" {
				got = append(got, key)
			}
		}
		if o.After = page.Next; page.Next == "" {
			break
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("keys in the bucket: %s", firstDifference(got, want))
		return
	}
	for _, key := range want {
		info, err := os.Lstat(r.path(dir + "/" + key))
		must(t, err)
		if !info.Mode().IsRegular() {
			continue
		}
		here, err := sumOf(r.path(dir + "/" + key))
		must(t, err)
		body, _, err := r.store.Get(t.Context(), dir+"/"+key, object.GetOptions{})
		must(t, err)
		there, err := digest(body)
		body.Close()
		if err != nil || here != there {
			t.Errorf("the bucket has other content of %s, %v", key, err)
		}
	}
}

// firstDifference says where two sorted lists part.
func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("got %d, want %d: %s is missing", len(got), len(want), want[i])
		case i >= len(want):
			return fmt.Sprintf("got %d, want %d: %s is too many", len(got), len(want), got[i])
		case got[i] != want[i]:
			return fmt.Sprintf("got %s, want %s", got[i], want[i])
		}
	}
	return "none"
}
