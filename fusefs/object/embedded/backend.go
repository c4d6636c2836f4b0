package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/versity/versitygw/backend/posix"
)

// openBackend opens the directory. It changes the working directory of the
// process, as the posix backend wants it.
func openBackend(o Options) (*store, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make store directory: %w", err)
	}
	attrs := attributes{}
	if err := makeBucket(attrs, o); err != nil {
		return nil, err
	}
	if err := clearTemp(filepath.Join(o.Dir, o.Bucket)); err != nil {
		return nil, err
	}
	opts := posix.PosixOpts{
		// Named temporary files: replacing an object through an unnamed one
		// takes a name 30 bytes longer than the object's, which fails for long
		// names and stays in the bucket if the process dies just then.
		ForceNoTmpFile:      true,
		CopyObjectThreshold: maxCopy,
	}
	opts.SetNewDirPerm(0o700)
	opts.SetNewFilePerm(0o600)
	be, err := posix.New(o.Dir, attrs, opts)
	if err != nil {
		return nil, fmt.Errorf("cannot open store directory %q: %w", o.Dir, err)
	}
	return &store{Posix: be, attrs: attrs, dirs: &dirs{attrs: attrs, wants: make(map[string]int)}}, nil
}

// uploadAge is how long an unfinished upload in parts may rest. Berth never goes
// on with one from before a restart; other tools may.
const uploadAge = 24 * time.Hour

// clearTemp removes what a process that died has left: temporary files, and
// unfinished uploads in parts that nobody goes on with.
func clearTemp(bucket string) error {
	dir := filepath.Join(bucket, posix.MetaTmpDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot clear temporary files of the store: %w", err)
	}
	var stale []string
	for _, e := range entries {
		if !e.IsDir() {
			stale = append(stale, filepath.Join(dir, e.Name()))
		}
	}
	// multipart/DIGEST OF THE KEY/UPLOAD ID/PART
	uploads, err := fs.Glob(os.DirFS(bucket), posix.MetaTmpMultipartDir+"/*/*")
	if err != nil {
		return fmt.Errorf("cannot clear unfinished uploads of the store: %w", err)
	}
	for _, name := range uploads {
		path := filepath.Join(bucket, name)
		if fi, err := os.Stat(path); err == nil && time.Since(fi.ModTime()) > uploadAge {
			stale = append(stale, path)
		}
	}
	for _, path := range stale {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("cannot clear temporary files of the store: %w", err)
		}
	}
	return nil
}
