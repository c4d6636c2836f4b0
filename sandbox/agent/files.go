package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"berth"
)

// place makes a path of a request absolute. dir is below the home.
func place(home, dir, path string) (string, error) {
	switch {
	case path == "":
		return "", invalidf("the path is empty")
	case len(path) > MaxPathName:
		return "", invalidf("the path has %d bytes, at most %d are allowed", len(path), MaxPathName)
	case strings.ContainsRune(path, 0):
		return "", invalidf("the path %q has a NUL byte", path)
	case filepath.IsAbs(path):
		return filepath.Clean(path), nil
	}
	return filepath.Join(home, dir, path), nil
}

// readFile serves PathRead. It never blocks on a fifo or a device.
func readFile(home string, q ReadRequest) (*ReadResult, error) {
	path, err := place(home, q.Dir, q.Path)
	if err != nil {
		return nil, err
	}
	if q.Offset < 0 || q.Limit < 0 || q.Limit > MaxFile {
		return nil, invalidf("offset %d or limit %d is out of range", q.Offset, q.Limit)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, named("read", q.Path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, named("read", q.Path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, invalidf("cannot read %q: it is %s, not a regular file", q.Path, kindWords(info.Mode()))
	}
	// The size is a hint only: the file may be cut or grow while it is read.
	buf := make([]byte, 0, max(0, min(q.Limit, info.Size()-q.Offset)))
	content, err := appendAll(buf, io.NewSectionReader(f, q.Offset, q.Limit))
	if err != nil {
		return nil, named("read", q.Path, err)
	}
	return &ReadResult{Content: content, Size: max(info.Size(), q.Offset+int64(len(content)))}, nil
}

// appendAll reads r to its end into buf, growing it when it is full.
func appendAll(buf []byte, r io.Reader) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, 512)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// writeFile serves PathWrite.
func writeFile(home string, q WriteRequest) (*WriteResult, error) {
	path, err := place(home, q.Dir, q.Path)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(q.Path, "/") {
		return nil, invalidf("cannot write %q: it names a directory", q.Path)
	}
	if len(q.Content) > MaxFile {
		return nil, &Error{CodeTooLarge, fmt.Sprintf("cannot write %q: %d bytes are more than the %d allowed", q.Path, len(q.Content), MaxFile)}
	}
	// A link is followed, so that the file it leads to is replaced and not the link.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	} else if info, lerr := os.Lstat(path); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil, named("write", q.Path, err)
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Lstat(path); err == nil {
		if !info.Mode().IsRegular() {
			return nil, invalidf("cannot write %q: it is %s, not a regular file", q.Path, kindWords(info.Mode()))
		}
		mode = info.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, named("write", q.Path, err)
	}
	if err := replace(path, q.Content, mode); err != nil {
		return nil, named("write", q.Path, err)
	}
	return &WriteResult{Size: int64(len(q.Content))}, nil
}

// replace puts content at path by a rename.
func replace(path string, content []byte, mode fs.FileMode) error {
	temp := filepath.Join(filepath.Dir(path), ".berth-"+rand.Text()[:12]+".tmp")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}

// listFiles serves PathList.
func listFiles(ctx context.Context, home string, q ListRequest) (*ListResult, error) {
	path, err := place(home, q.Dir, q.Path)
	if err != nil {
		return nil, err
	}
	if q.Limit < 1 || q.Limit > MaxEntries {
		return nil, invalidf("limit %d is out of range: 1 to %d", q.Limit, MaxEntries)
	}
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, named("list", q.Path, err)
	}
	defer dir.Close()
	names, more, err := firstNames(ctx, dir, q.Limit)
	if err != nil {
		return nil, named("list", q.Path, err)
	}
	out := &ListResult{Entries: make([]Entry, 0, len(names)), Truncated: more}
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(path, name))
		if err != nil {
			continue // removed meanwhile
		}
		out.Entries = append(out.Entries, Entry{
			Name: []byte(name), Kind: string(kindOf(info.Mode())), Size: info.Size(), MtimeNS: info.ModTime().UnixNano(),
		})
	}
	return out, nil
}

// firstNames returns the first limit names of a directory in order, and whether
// there are more. However many there are, it holds a few times limit of them.
func firstNames(ctx context.Context, dir *os.File, limit int) (names []string, more bool, err error) {
	for {
		batch, err := dir.Readdirnames(1024)
		names = append(names, batch...)
		if len(names) > 4*limit+1024 || err != nil {
			slices.Sort(names)
			if len(names) > limit {
				names, more = slices.Clone(names[:limit]), true
			}
		}
		switch {
		case err == io.EOF:
			return names, more, nil
		case err != nil:
			return nil, false, err
		case ctx.Err() != nil:
			return nil, false, ctx.Err()
		}
	}
}

func kindOf(m fs.FileMode) berth.FileKind {
	switch m.Type() {
	case 0:
		return berth.KindFile
	case fs.ModeDir:
		return berth.KindDir
	case fs.ModeSymlink:
		return berth.KindSymlink
	}
	return berth.KindOther
}

func kindWords(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a fifo"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// named says what could not be done to which path, as the caller named it.
func named(verb, path string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	var cause error = err
	var pe *fs.PathError
	var le *os.LinkError
	if errors.As(err, &pe) {
		cause = pe.Err
	} else if errors.As(err, &le) {
		cause = le.Err
	}
	return fmt.Errorf("cannot %s %q: %w", verb, path, cause)
}

// toError gives an error its code.
func toError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	code := CodeInternal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = CodeNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		code = CodePermission
	case errors.Is(err, fs.ErrExist):
		code = CodeExists
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		code = CodeFull
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP),
		errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENXIO):
		code = CodeInvalid
	}
	text := err.Error()
	if len(text) > MaxMessage {
		text = text[:MaxMessage]
	}
	return &Error{code, strings.ToValidUTF8(text, "\uFFFD")}
}
