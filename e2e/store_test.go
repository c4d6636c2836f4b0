package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
)

// TestOwnBucket has berth use the bucket of an S3 endpoint, which another berth
// lends it, and then mounts that bucket alone.
func TestOwnBucket(t *testing.T) {
	lender := start(t, "--sandboxes=off")
	team := bucket{lender.bucket(t).client, "team"}
	if err := team.client.MakeBucket(t.Context(), team.name, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	access, secret := lender.storeCredentials(t)
	t.Setenv("AWS_ACCESS_KEY_ID", access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	store := []string{"--store", team.client.EndpointURL().String(), "--bucket", team.name}

	b := up(t, stateDir(t), append(store, "--sandboxes=off")...)
	key := b.Workspace + "/members/" + b.User + "/"
	b.call(t, b.Member, "PUT", "/v1/files/me/d/ours", "ours").want(t, 201, nil)
	b.flush(t)
	content, _ := team.object(t, key+"d/ours")
	equal(t, "object d/ours", content, "ours")
	team.put(t, key+"d/foreign", "theirs")
	eventually(t, "what another tool put into the bucket is seen", 30*time.Second, func() bool {
		return string(b.call(t, b.Member, "GET", "/v1/files/me/d/foreign", nil).Body) == "theirs"
	})
	b.stop(t)
	mountAlone(t, team, key, store)
}

// mountAlone serves the bucket by `berth mount`; SIGTERM uploads and unmounts.
func mountAlone(t *testing.T, team bucket, key string, store []string) {
	t.Helper()
	state := stateDir(t)
	dir := filepath.Join(filepath.Dir(state), "mnt")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(t), append(append([]string{"mount", "--state", state}, store...), dir)...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, dir) {
		cmd.Process.Kill()
		t.Fatalf("berth mount said %q, %v", line, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, key, "d/ours"))
	if err != nil || string(text) != "ours" {
		t.Errorf("the file on the mount: %q, %v", text, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "late"), []byte("written before SIGTERM"), 0o644); err != nil {
		t.Error(err)
	}
	if text, err := exec.Command(program(t), "status", "--state", state).CombinedOutput(); err != nil || !strings.Contains(string(text), team.name) {
		t.Errorf("berth status of a mount: %v, %s", err, text)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("berth mount ended with %v, want exit 0", err)
	}
	content, _ := team.object(t, "late")
	equal(t, "the object after SIGTERM", content, "written before SIGTERM")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("still mounted: %v, %v", left, err)
	}
}
