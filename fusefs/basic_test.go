package fusefs

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestBasic(t *testing.T) {
	r := newRig(t)
	must(t, os.Mkdir(r.path("d"), 0o755))
	must(t, os.WriteFile(r.path("d/a"), []byte("hello"), 0o640))
	must(t, os.Rename(r.path("d/a"), r.path("d/b")))
	if got, err := os.ReadFile(r.path("d/b")); err != nil || string(got) != "hello" {
		t.Fatalf("got %q, %v", got, err)
	}
	r.flush()
	if got, err := r.object("d/b"); err != nil || got != "hello" {
		t.Errorf("object: got %q, %v", got, err)
	}
	if got, want := r.keys(), []string{"d/", "d/b"}; !slices.Equal(got, want) {
		t.Errorf("keys: got %v, want %v", got, want)
	}
}

// Who holds the mount's connection keeps it alive when its server dies.
func TestChildrenDoNotHoldTheMount(t *testing.T) {
	newRig(t)
	out, err := exec.Command("ls", "-l", "/proc/self/fd").CombinedOutput()
	if err != nil || strings.Contains(string(out), "/dev/fuse") {
		t.Errorf("a child has %s, %v", out, err)
	}
}
