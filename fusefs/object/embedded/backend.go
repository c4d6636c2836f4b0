package embedded

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
)

// openBackend opens the directory. It changes the working directory of the
// process, as the posix backend wants it.
func openBackend(o Options) (*store, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make store directory: %w", err)
	}
	attrs := meta.XattrMeta{}
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
	return &store{Posix: be, attrs: attrs}, nil
}

// clearTemp removes the temporary files of a process that died. Parts of
// unfinished uploads stay.
func clearTemp(bucket string) error {
	dir := filepath.Join(bucket, posix.MetaTmpDir)
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot clear temporary files of the store: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("cannot clear temporary files of the store: %w", err)
		}
	}
	return nil
}
