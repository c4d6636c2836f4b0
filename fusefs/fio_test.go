package fusefs

import (
	"flag"
	"os/exec"
	"testing"
)

var fioSize = flag.String("fio", "4m", "bytes that each job of TestFio writes")

// TestFio has fio write checksummed blocks in several ways at once and verify them:
// then, and after all that was known here is lost.
func TestFio(t *testing.T) {
	jobs := []string{
		"--name=sequential", "--rw=write", "--ioengine=psync", "--bs=64k",
		"--name=random", "--rw=randwrite", "--ioengine=psync", "--bsrange=4k-64k", "--fsync=64",
		"--name=mapped", "--rw=randwrite", "--ioengine=mmap", "--bs=4k",
		"--name=direct", "--rw=randwrite", "--ioengine=libaio", "--iodepth=8", "--direct=1", "--bs=8k",
		"--name=mixed", "--rw=randrw", "--ioengine=psync", "--bs=4k", "--rwmixread=30", "--fallocate=none",
	}
	fio := func(t *testing.T, r *rig, verify string) {
		t.Helper()
		args := []string{"--directory=" + r.dir, "--size=" + *fioSize, "--verify=crc32c", "--verify_fatal=1", verify, "--randseed=7"}
		cmd := exec.Command("fio", append(args, jobs...)...)
		cmd.Dir = t.TempDir() // where it leaves the state of a verification
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", verify, err, out)
		}
	}
	inModes(t, func(t *testing.T, r *rig) {
		fio(t, r, "--do_verify=1")
		r.flush()
		r.forget()
		fio(t, r, "--verify_only=1")
	})
}
