package sync

import (
	"context"
	"errors"
	"io/fs"
	"sort"
	"strings"

	"berth/fusefs/index"
	"berth/fusefs/object"
)

const mergeBatch = 128 // names in one commit, so that the namespace is never locked for long

// A found is one name of a page, or one that a page should have had.
type found struct {
	name string
	info object.Info // of the object
	dir  bool        // the name has keys below it
}

// What one batch of a merge found out, acted on when it is committed.
type outcome struct {
	created []found
	changed []found     // other content under the key of a clean file
	covered []found     // a directory under the name of a file
	touched []index.Ino // attributes to be asked for again
}

// merge takes one page of a directory's listing into the index.
func (s *Syncer) merge(ctx context.Context, l *listing, res object.Page, keys *page) error {
	names, end, marker := l.names(res)
	for len(names) > 0 {
		batch := names[:min(mergeBatch, len(names))]
		names = names[len(batch):]
		out, err := s.mergeNames(l, batch, keys)
		if err != nil {
			return err
		}
		if err := s.act(l, out); err != nil {
			return err
		}
	}
	if marker != nil {
		l.marked = true
		if err := s.mergeMarker(l, *marker, keys); err != nil {
			return err
		}
	}
	if err := s.dropVanished(ctx, l, res, end, keys); err != nil {
		return err
	}
	l.from = end
	return nil
}

// names returns what a page shows, the last key that it covers ("" = to the end)
// and the directory's own marker.
func (l *listing) names(res object.Page) (names []found, end string, marker *object.Info) {
	dirs := make(map[string]bool, len(res.Prefixes))
	for _, p := range res.Prefixes {
		l.sawPrefix(p)
		name := strings.TrimSuffix(strings.TrimPrefix(p, l.prefix), "/")
		if hides(l.prefix, name) {
			l.hidden++
			continue
		}
		dirs[name] = true
		names = append(names, found{name: name, dir: true})
	}
	for _, info := range res.Objects {
		name := strings.TrimPrefix(info.Key, l.prefix)
		switch {
		case name == "":
			marker = &info
		case hides(l.prefix, name) || dirs[name] || CheckKey(info.Key) != nil:
			l.hidden++
		default:
			names = append(names, found{name: name, info: info})
		}
	}
	if res.Next != "" {
		for _, p := range res.Prefixes {
			end = max(end, p)
		}
		for _, info := range res.Objects {
			end = max(end, info.Key)
		}
	}
	return names, end, marker
}

// mergeNames commits some names of a page.
func (s *Syncer) mergeNames(l *listing, names []found, keys *page) (outcome, error) {
	var out outcome
	hidden := l.hidden
	err := s.db.Update(func(b *index.Batch) error {
		out, l.hidden = outcome{}, hidden
		if key, err := s.dirKey(l.dir); err != nil || key != l.prefix {
			return errors.Join(err, errChanged)
		}
		for _, f := range names {
			merge := s.mergeFile
			if f.dir {
				merge = s.mergeDir
			}
			if err := merge(b, l, f, keys, &out); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// mergeFile merges one object. What is known better here is left alone: keys with
// work under way, and names that await their upload, whose PUT will tell.
func (s *Syncer) mergeFile(b *index.Batch, l *listing, f found, keys *page, out *outcome) error {
	if s.touched.has(keys, f.info.Key) || s.claims.hasKey(f.info.Key) {
		return nil
	}
	r, known, err := s.db.Remote(f.info.Key)
	if err != nil || known && (r.Doomed || r.Intent.Gen != 0) {
		return err
	}
	e, err := s.db.Lookup(l.dir, f.name)
	if errors.Is(err, fs.ErrNotExist) {
		return s.mergeNew(b, l, f, r, out)
	}
	if err != nil {
		return err
	}
	if e.Type == index.TypeDir {
		l.hidden++
		return nil
	}
	if !known || r.Ino != e.Ino {
		return nil
	}
	if pending, err := s.pending(e.Ino); err != nil || pending {
		return err
	}
	if sameVersion(r, f.info) && s.notSince(r, f.info) {
		if modified := unixNano(f.info.LastModified); r.LastModified == 0 && modified != 0 {
			r.LastModified = modified
			b.PutRemote(r)
		}
		return nil
	}
	if r.ETag != f.info.ETag {
		out.changed = append(out.changed, f)
		return nil
	}
	// The same content was written again: its attributes may be others.
	n, err := s.db.Inode(e.Ino)
	if err != nil {
		return err
	}
	n.Bare = true
	b.PutInode(n)
	r.LastModified = unixNano(f.info.LastModified)
	b.PutRemote(r)
	out.touched = append(out.touched, n.Ino)
	return nil
}

// pending says whether there is local work on an inode that stamps have to decide
// about.
func (s *Syncer) pending(ino index.Ino) (bool, error) {
	queued, err := s.db.Queued(ino)
	if err != nil || queued {
		return true, err
	}
	_, open, err := s.db.OpenMark(ino)
	return open, err
}

// mergeNew adds an object that has no name here yet.
func (s *Syncer) mergeNew(b *index.Batch, l *listing, f found, r index.Remote, out *outcome) error {
	if r.Ino != 0 {
		if _, err := s.db.Inode(r.Ino); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err // of a file that was renamed: its old key is about to go
		}
	}
	n, err := s.newFileLocked(b, &l.inode, f.name, f.info)
	if err != nil {
		return err
	}
	b.PutRemote((&incoming{want: want{key: f.info.Key}, info: f.info}).remote(&n))
	out.created = append(out.created, f)
	return nil
}

// mergeDir merges one prefix.
func (s *Syncer) mergeDir(b *index.Batch, l *listing, f found, keys *page, out *outcome) error {
	p := l.prefix + f.name + "/"
	if s.touched.has(keys, p) {
		return nil
	}
	e, err := s.db.Lookup(l.dir, f.name)
	if err == nil {
		if e.Type != index.TypeDir {
			out.covered = append(out.covered, f)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if known, err := s.db.RemotesAfter(p, "", 1); err != nil || len(known) > 0 {
		return err // of a directory that was removed or renamed: its keys are about to go
	}
	if _, err := s.newDirLocked(b, &l.inode, f.name); err != nil {
		return err
	}
	out.created = append(out.created, f)
	return nil
}

// mergeMarker merges the marker object of the listed directory itself.
func (s *Syncer) mergeMarker(l *listing, info object.Info, keys *page) error {
	changed := false
	err := s.db.Update(func(b *index.Batch) error {
		if key, err := s.dirKey(l.dir); err != nil || key != l.prefix {
			return errors.Join(err, errChanged)
		}
		n, err := s.db.Inode(l.dir)
		if err != nil || n.Parent == 0 || s.touched.has(keys, info.Key) || s.claims.hasKey(info.Key) {
			return err
		}
		r, known, err := s.db.Remote(info.Key)
		if err != nil || known && (r.Doomed || r.Intent.Gen != 0) {
			return err
		}
		if queued, err := s.db.Queued(n.Ino); err != nil || queued {
			return err
		}
		if known && r.Ino == n.Ino && sameVersion(r, info) && s.notSince(r, info) {
			if modified := unixNano(info.LastModified); r.LastModified != modified {
				r.LastModified = modified
				b.PutRemote(r)
			}
			return nil
		}
		n.Explicit, n.Bare, changed = true, true, true
		b.PutInode(n)
		b.PutRemote((&incoming{want: want{key: info.Key}, info: info}).remote(&n))
		return nil
	})
	if err == nil && changed {
		s.hooks.InodeChanged(l.dir)
	}
	return err
}

// dropVanished removes what Remotes tell of and a page should have had. Before a
// name goes the store is asked for that very key.
func (s *Syncer) dropVanished(ctx context.Context, l *listing, res object.Page, end string, keys *page) error {
	has := func(key string) bool {
		i := sort.Search(len(res.Objects), func(i int) bool { return res.Objects[i].Key >= key })
		return i < len(res.Objects) && res.Objects[i].Key == key
	}
	for after := l.from; ; {
		rs, err := s.db.RemotesAfter(l.prefix, after, movePage)
		if err != nil || len(rs) == 0 {
			return err
		}
		for _, r := range rs {
			if r.Key <= after {
				continue // below a directory that was dealt with
			}
			if end != "" && r.Key > end {
				return nil
			}
			after = r.Key
			name, _, below := strings.Cut(strings.TrimPrefix(r.Key, l.prefix), "/")
			if below {
				p := l.prefix + name + "/"
				after = p + "\xff" // no key of valid UTF-8 that begins with p is above it
				if !l.seen(p) && (end == "" || p <= end) {
					err = s.vanishDirNamed(ctx, l, name)
				}
			} else if r.ETag != "" && r.Key != l.prefix && !has(r.Key) && !s.touched.has(keys, r.Key) {
				err = s.vanishFile(ctx, r)
			}
			if err != nil {
				return err
			}
		}
	}
}
