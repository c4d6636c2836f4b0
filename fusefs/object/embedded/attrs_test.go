package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestManyParts has the sizes of more parts than fit beside an object.
func TestManyParts(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "object"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := attributes{}
	sizes := []byte(strings.Repeat(fmt.Sprint(64<<20, ","), 10000))
	if err := a.StoreAttribute(nil, dir, "object", partsAttr, sizes); err != nil {
		t.Error(err)
	}
	if err := a.StoreAttribute(nil, dir, "object", "etag", []byte("e")); err != nil {
		t.Error(err)
	}
	if got, err := a.RetrieveAttribute(nil, dir, "object", "etag"); err != nil || string(got) != "e" {
		t.Errorf("etag: got %q, %v", got, err)
	}
}
