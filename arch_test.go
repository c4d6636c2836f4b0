package berth_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A listed package, as `go list -json` prints it.
type listed struct {
	ImportPath   string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// mayImport is the import table: what of ours a package may import, besides
// the packages that its own layer allows. Arrows point one way: cmd, api,
// {preview, sandbox, mounts}, fusefs, berth. A name that ends in "/..." stands
// for all packages at and below it. preview, sandbox and mounts do not know
// each other; cmd joins them.
var mayImport = map[string][]string{
	"berth":                   {},
	"berth/fusefs/index":      {"berth"},
	"berth/fusefs/object/...": {"berth", "berth/fusefs/object"},
	// A helper of tests: the embedded server with a client of it.
	"berth/fusefs/object/embedded/embeddedtest": {"berth/fusefs/object/..."},
	"berth/fusefs/cache":                        {"berth", "berth/fusefs/index"},
	"berth/fusefs/sync":                         {"berth", "berth/fusefs/index", "berth/fusefs/cache", "berth/fusefs/object"},
	"berth/fusefs":                              {"berth", "berth/fusefs/..."},
	"berth/mounts":                              {"berth", "berth/fusefs", "berth/fusefs/object"},
	"berth/sandbox/...":                         {"berth", "berth/sandbox/..."},
	"berth/sandbox/agent":                       {"berth"},
	"berth/preview":                             {"berth"},
	"berth/preview/web":                         {},
	"berth/api":                                 {"berth", "berth/preview/...", "berth/sandbox", "berth/mounts"},
	"berth/deploy":                              {},
	"berth/cmd/berth":                           {"berth", "berth/..."},
	"berth/cmd/berth-agent":                     {"berth", "berth/sandbox/agent"},
	"berth/e2e":                                 {},
	"berth/sandbox/docker":                      {"berth", "berth/sandbox"},
	"berth/sandbox/providertest":                {"berth", "berth/sandbox/..."},
}

// onlyIn says which packages may import an outside dependency: each is adapted
// in one place.
var onlyIn = map[string][]string{
	"github.com/hanwen/go-fuse/v2":        {"berth/fusefs"},
	"github.com/minio/minio-go/v7":        {"berth/fusefs/object/s3"},
	"github.com/versity/versitygw":        {"berth/fusefs/object/embedded"},
	"github.com/cockroachdb/pebble/v2":    {"berth/fusefs/index"},
	"github.com/docker/docker":            {"berth/sandbox/docker"},
	"github.com/labstack/echo/v4":         {"berth/api"},
	"github.com/spf13/cobra":              {"berth/cmd/berth"},
	"gopkg.in/yaml.v3":                    {"berth/cmd/berth"},
	"github.com/aws/aws-sdk-go-v2":        {"berth/fusefs/object/embedded"},
	"github.com/gofiber/fiber/v3":         {"berth/fusefs/object/embedded"},
	"github.com/prometheus/client_golang": {},
}

// In tests alone: the suite that go-fuse brings, a plain S3 client, an API document.
var alsoInTests = map[string][]string{
	"github.com/minio/minio-go/v7": {"berth/e2e"},
	"gopkg.in/yaml.v3":             {"berth/api"},
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,TestImports,XTestImports", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// covers reports whether an entry of the table names the package.
func covers(entry, pkg string) bool {
	if below, ok := strings.CutSuffix(entry, "/..."); ok {
		return within(pkg, below)
	}
	return entry == pkg
}

func within(pkg, root string) bool { return pkg == root || strings.HasPrefix(pkg, root+"/") }

// allowed returns what the package may import of ours, by its longest entry.
func allowed(pkg string) ([]string, bool) {
	best := ""
	for entry := range mayImport {
		if covers(entry, pkg) && len(entry) > len(best) {
			best = entry
		}
	}
	return mayImport[best], best != ""
}

// TestImportDirections holds what the packages import against the table. Tests
// may import one layer's packages more freely, but never upwards: what they
// need of another package they find in its test suite.
func TestImportDirections(t *testing.T) {
	for _, p := range packages(t) {
		may, known := allowed(p.ImportPath)
		if !known {
			t.Errorf("%s is not in the import table", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if within(imp, "berth") && !slices.ContainsFunc(may, func(e string) bool { return covers(e, imp) }) {
				t.Errorf("%s must not import %s", p.ImportPath, imp)
			}
		}
		tests := slices.Concat(p.TestImports, p.XTestImports)
		for _, imp := range tests {
			if level(imp) > level(p.ImportPath) && !within(imp, p.ImportPath) {
				t.Errorf("the tests of %s must not import %s, which is above it", p.ImportPath, imp)
			}
		}
	}
}

// level is the layer of a package of ours, 0 for all others.
func level(pkg string) int {
	for i, roots := range [][]string{
		{"berth/cmd", "berth/e2e"}, {"berth/api"}, {"berth/preview", "berth/sandbox", "berth/mounts"}, {"berth/fusefs"},
	} {
		for _, root := range roots {
			if within(pkg, root) {
				return 4 - i
			}
		}
	}
	return 0
}

func TestNeighboursDoNotKnowEachOther(t *testing.T) {
	neighbours := []string{"berth/preview", "berth/sandbox", "berth/mounts"}
	for _, p := range packages(t) {
		for _, own := range neighbours {
			if !within(p.ImportPath, own) {
				continue
			}
			for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
				for _, other := range neighbours {
					if other != own && within(imp, other) {
						t.Errorf("%s imports %s", p.ImportPath, imp)
					}
				}
			}
		}
	}
}

// TestOneDependencyOnePackage: nobody imports an outside dependency but the
// package that adapts it.
func TestOneDependencyOnePackage(t *testing.T) {
	for _, p := range packages(t) {
		check := func(kind string, imports []string, extra map[string][]string) {
			for _, imp := range imports {
				for dep, owners := range onlyIn {
					if !within(imp, dep) {
						continue
					}
					may := slices.Concat(owners, extra[dep])
					if !slices.Contains(may, p.ImportPath) {
						t.Errorf("%s%s imports %s, which only %v may", kind, p.ImportPath, imp, may)
					}
				}
			}
		}
		check("", p.Imports, nil)
		check("test of ", slices.Concat(p.TestImports, p.XTestImports), alsoInTests)
	}
}

// TestFilesAreShort holds every source file to the cap of 500 lines.
func TestFilesAreShort(t *testing.T) {
	const limit = 500
	files, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go", "*.ts", "*.tsx", "*.css", "*.sh").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.Lines(string(files)) {
		name = strings.TrimSpace(name)
		if n := countLines(t, name); n > limit {
			t.Errorf("%s has %d lines, at most %d are allowed", name, n, limit)
		}
	}
}

func countLines(t *testing.T, name string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(name))
	if errors.Is(err, os.ErrNotExist) {
		return 0 // removed, but not committed yet
	}
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(data, []byte("\n"))
}
