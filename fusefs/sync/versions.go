package sync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

// A Content is a version that is being read. Its reader ends with the context it
// was opened with.
type Content struct {
	io.ReadCloser
	Version berth.Version
	Mode    uint32 // st_mode, with the type
}

// Versions returns the versions of a key that the history keeps, the latest
// first: at most object.MaxPage.
func (s *Syncer) Versions(ctx context.Context, key string) ([]berth.Version, error) {
	page, err := s.store.List(ctx, object.ListOptions{Prefix: historyDir(key), Delimiter: "/"})
	if err != nil {
		return nil, err
	}
	var out []berth.Version
	for _, info := range page.Objects {
		if _, v, ok := toVersion(info); ok {
			out = append(out, v)
		}
	}
	slices.Reverse(out)
	return out, nil
}

// OpenVersion opens a version of a key by its ID.
func (s *Syncer) OpenVersion(ctx context.Context, key, id string) (*Content, error) {
	if err := checkVersionID(id); err != nil {
		return nil, err
	}
	return s.openObject(ctx, historyDir(key)+id, "")
}

func (s *Syncer) openObject(ctx context.Context, key, etag string) (*Content, error) {
	body, info, err := s.store.Get(ctx, key, object.GetOptions{IfMatch: etag})
	if err != nil {
		return nil, err
	}
	c := &Content{ReadCloser: body, Mode: decodeAttributes(info, false).mode}
	_, c.Version, _ = toVersion(info)
	c.Version.Size = info.Size
	return c, nil
}

// OpenStamp opens the content of a key that was written at a stamp: from the
// history, or from the object itself. It is fs.ErrNotExist when neither has it.
func (s *Syncer) OpenStamp(ctx context.Context, key string, stamp index.Stamp) (*Content, error) {
	if stamp.IsZero() {
		return nil, fmt.Errorf("a version of %q: %w", key, fs.ErrNotExist)
	}
	r, ok, err := s.db.Remote(key)
	if err != nil {
		return nil, err
	}
	if ok && r.ETag != "" && r.Intent.Gen == 0 && versionStamp(r.Stamp, r.LastModified, r.ETag) == stamp {
		c, err := s.openObject(ctx, key, r.ETag)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, object.ErrPrecondition) {
			return c, err
		}
	}
	page, err := s.store.List(ctx, object.ListOptions{Prefix: historyDir(key) + stamp.String() + ".", Max: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Objects) == 0 {
		return nil, fmt.Errorf("a version of %q: %w", key, fs.ErrNotExist)
	}
	return s.openObject(ctx, page.Objects[0].Key, "")
}

// VersionStamp returns the stamp under which the history keeps the present content
// of an inode; zero if that is neither berth's nor in the bucket.
func (s *Syncer) VersionStamp(n *index.Inode) (index.Stamp, error) {
	if !n.Stamp.IsZero() {
		return n.Stamp, nil
	}
	r, ok, err := s.holder(n, "")
	if err != nil || !ok {
		return index.Stamp{}, err
	}
	return versionStamp(r.Stamp, r.LastModified, r.ETag), nil
}

// KeepContent puts content into the history that was displaced before it was
// uploaded. A version of this stamp that is there already stays.
func (s *Syncer) KeepContent(ctx context.Context, key string, n *index.Inode, body io.ReaderAt, size int64) error {
	if size > maxKept || !keepsHistory(key) || n.Stamp.IsZero() {
		return nil
	}
	page, err := s.store.List(ctx, object.ListOptions{Prefix: historyDir(key) + n.Stamp.String() + ".", Max: 1})
	if err != nil || len(page.Objects) > 0 {
		return err
	}
	_, err = s.store.Put(ctx, historyKey(key, n.Stamp, berth.EndOverwritten), body, size,
		object.PutOptions{IfNoneMatch: true, Metadata: encodeMetadata(n, key, s.owner)})
	if errors.Is(err, object.ErrPrecondition) {
		return nil
	}
	return err
}

// Bounds of one call of Deleted.
const (
	deletedPages = 50   // of the history that are read
	mostDeleted  = 5000 // returned
)

// Deleted returns the paths below a prefix of the bucket, as a tree's or a
// directory's, that have no file now but had one that was deleted, each with its
// last version, by path. more says that there may be more than is looked at or
// returned.
func (s *Syncer) Deleted(ctx context.Context, prefix string) (files []berth.DeletedFile, more bool, err error) {
	last := make(map[string]berth.Version) // by key
	o := object.ListOptions{Prefix: historyPrefix + prefix}
	for range deletedPages {
		page, err := s.store.List(ctx, o)
		if err != nil {
			return nil, false, err
		}
		for _, info := range page.Objects {
			if key, v, ok := toVersion(info); ok && v.ID >= last[key].ID {
				last[key] = v
			}
		}
		if o.After = page.Next; o.After == "" {
			break
		}
	}
	for key, v := range last {
		if v.End != berth.EndDeleted || isLong(key) {
			continue
		}
		there, err := s.exists(ctx, key)
		if err != nil {
			return nil, false, err
		}
		if !there {
			files = append(files, berth.DeletedFile{Path: strings.TrimPrefix(key, prefix), Version: v})
		}
	}
	slices.SortFunc(files, func(a, b berth.DeletedFile) int { return strings.Compare(a.Path, b.Path) })
	more = o.After != ""
	if len(files) > mostDeleted {
		files, more = files[:mostDeleted], true
	}
	return files, more, nil
}

// exists says whether something has a key's name now. The bucket is asked where a
// directory was not listed yet.
func (s *Syncer) exists(ctx context.Context, key string) (bool, error) {
	at, path, ok, err := s.treeOf(key)
	if err != nil || !ok {
		return false, err
	}
	for name := range strings.SplitSeq(path, "/") {
		dir, err := s.db.Inode(at)
		if err != nil {
			return false, err
		}
		e, err := s.db.Lookup(at, name)
		if errors.Is(err, fs.ErrNotExist) && dir.IsDir() && dir.Listed == 0 {
			_, err = s.store.Head(ctx, key)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil || e.Ino == 0 {
			return err == nil, err
		}
		at = e.Ino
	}
	return true, nil
}
