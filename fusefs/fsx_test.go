package fusefs

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var (
	fsxOps   = flag.Int("fsx", 2500, "operations of each run of TestFsx")
	fsxSeeds = flag.Int("fsx-seeds", 1, "runs of TestFsx in each mode")
	fsxSeed  = flag.Uint64("fsx-seed", 0, "seed of the first run; 0 = by lot")
)

// fsxEnv makes the test binary exercise files: DIR, MODELS, seed and operations.
const fsxEnv = "BERTH_TEST_FSX"

// TestFsx changes a few files in all ways there are, in random order, and compares
// each with a model in memory: as the kernel has it all the while, then as the
// bucket has it, then as a mount has it that knows only the bucket.
func TestFsx(t *testing.T) {
	seed := *fsxSeed
	if seed == 0 {
		seed = rand.Uint64N(1_000_000) + 1
	}
	inModes(t, func(t *testing.T, r *rig) {
		for i := range uint64(*fsxSeeds) {
			t.Logf("-fsx-seed %d -fsx %d", seed+i, *fsxOps)
			fsx(t, r, seed+i)
			if t.Failed() {
				return
			}
		}
	})
}

func fsx(t *testing.T, r *rig, seed uint64) {
	t.Helper()
	name := fmt.Sprint("fsx", seed)
	models := t.TempDir()
	must(t, os.Mkdir(r.path(name), 0o755))
	begin := time.Now()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d", fsxEnv, r.path(name), models, seed, *fsxOps))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, out)
	}
	if *fsxOps > 10_000 {
		t.Logf("seed %d: %d operations in %v", seed, *fsxOps, time.Since(begin).Round(time.Second))
	}
	r.flush()
	compare := func(where string, read func(file string) ([]byte, error)) {
		t.Helper()
		files, err := filepath.Glob(models + "/*")
		if err != nil || len(files) != fsxFiles {
			t.Fatalf("seed %d: got %d models, %v, want %d", seed, len(files), err, fsxFiles)
		}
		for _, file := range files {
			want, err := os.ReadFile(file)
			must(t, err)
			got, err := read(name + "/" + filepath.Base(file))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("seed %d: %s in the %s: %v, %s", seed, filepath.Base(file), where, err, fsxDifference(got, want))
			}
		}
	}
	compare("bucket", func(key string) ([]byte, error) {
		got, err := r.object(key)
		return []byte(got), err
	})
	r.forget()
	compare("mount after a cold start", func(key string) ([]byte, error) { return os.ReadFile(r.path(key)) })
}

func fsxDifference(got, want []byte) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d is %#x, want %#x (%d bytes, want %d)", i, got[i], want[i], len(got), len(want))
		}
	}
	return fmt.Sprintf("%d bytes, want %d", len(got), len(want))
}
