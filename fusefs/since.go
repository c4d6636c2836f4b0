package fusefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"berth"
	"berth/fusefs/index"
)

// Bounds of ChangesSince.
const (
	maxRecords = 200_000 // read from the index
	maxChanges = 5_000   // returned
)

// ChangesSince returns what has changed in a tree since one of its checkpoints, by
// path. more says that there is more than is looked at or returned. A checkpoint
// that the tree does not have, or no more, is ErrNotKept. It takes as long as it
// has to tell, however large the tree is.
func (f *FS) ChangesSince(ctx context.Context, t berth.Tree, checkpoint uint64) (changes []berth.PathChange, more bool, err error) {
	root, err := f.treeRoot(t)
	if err == nil {
		var ok bool
		if ok, err = f.db.HasCheckpoint(root, checkpoint); err == nil && !ok {
			err = ErrNotKept
		}
	}
	q := &sinceQuery{ctx: ctx, f: f, root: root, places: make(map[index.Ino]index.Name), contents: make(map[index.Ino]index.Saved),
		paths: make(map[index.Ino]string), found: make(map[index.Name]*berth.PathChange)}
	if err == nil {
		err = q.run(checkpoint)
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot list what changed in %q since checkpoint %d: %w", treeString(t), checkpoint, err)
	}
	for _, c := range q.found {
		changes = append(changes, *c)
	}
	slices.SortFunc(changes, func(a, b berth.PathChange) int { return strings.Compare(a.Path, b.Path) })
	if len(changes) > maxChanges {
		changes, q.more = changes[:maxChanges], true
	}
	return changes, q.more, nil
}

// A sinceQuery is one ChangesSince.
type sinceQuery struct {
	ctx  context.Context
	f    *FS
	root index.Ino
	more bool

	entries  []oldAndNew
	places   map[index.Ino]index.Name  // where inodes were whose names have changed
	arrived  map[index.Ino]bool        // has a name now that it did not have, where nothing was
	contents map[index.Ino]index.Saved // what files held whose contents may have changed
	paths    map[index.Ino]string      // of directories, as they were
	found    map[index.Name]*berth.PathChange
}

// oldAndNew is one name of a directory, then and now.
type oldAndNew struct {
	name     index.Name
	old, now index.Entry // Ino 0 = nothing
}

func (q *sinceQuery) run(checkpoint uint64) error {
	if err := q.read(checkpoint); err != nil {
		return err
	}
	for _, e := range q.entries {
		if err := q.entry(e); err != nil {
			return err
		}
	}
	for _, s := range q.contents {
		if err := q.content(s); err != nil {
			return err
		}
	}
	return nil
}

// read reads what was noted since, of each name and file the first only.
func (q *sinceQuery) read(checkpoint uint64) error {
	seen := make(map[index.Name]bool)
	records := 0
	enough := func() bool {
		records++
		q.more = records > maxRecords
		return q.more || q.ctx.Err() != nil
	}
	var bad error
	err := q.f.db.Since(q.root, checkpoint, func(e index.OldEntry) bool {
		if enough() {
			return false
		}
		name := index.Name{Parent: e.Parent, Name: e.Name}
		if seen[name] {
			return true
		}
		seen[name] = true
		now, err := q.f.db.Lookup(e.Parent, e.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			bad = err
			return false
		}
		q.entries = append(q.entries, oldAndNew{name, index.Entry{Ino: e.Ino, Type: e.Type}, now})
		return true
	}, func(s index.Saved) bool {
		if _, ok := q.contents[s.Ino]; !ok {
			q.contents[s.Ino] = s
		}
		return !enough()
	})
	q.arrived = make(map[index.Ino]bool)
	for _, e := range q.entries {
		if e.old.Ino != 0 {
			q.places[e.old.Ino] = e.name
		}
	}
	for _, e := range q.entries {
		if e.old.Ino == 0 && e.now.Ino != 0 {
			q.arrived[e.now.Ino] = true
		}
	}
	return errors.Join(err, bad, context.Cause(q.ctx))
}

// entry tells what became of one name.
func (q *sinceQuery) entry(e oldAndNew) error {
	old, now := e.old.Ino, e.now.Ino
	c := &berth.PathChange{Kind: berth.PathCreated, File: kindOf(e.now.Type)}
	var err error
	switch from, was := q.places[now]; {
	case old == now:
		return nil
	case now == 0 && q.arrived[old]:
		return nil // renamed
	case now == 0:
		c.Kind, c.File = berth.PathDeleted, kindOf(e.old.Type)
		c.Path, err = q.oldPath(e.name)
	case old != 0:
		c.Kind = berth.PathModified
	case was && !q.stays(from, now):
		c.Kind = berth.PathRenamed
		c.From, err = q.oldPath(from)
		old = now
	}
	if err == nil && now != 0 {
		c.Path, err = q.f.db.Path(e.name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a directory on the way was removed meanwhile
	}
	if err != nil {
		return err
	}
	c.Old, c.New = q.before(old), q.present(now)
	q.found[e.name] = c
	return nil
}

// stays says whether an inode still has a name.
func (q *sinceQuery) stays(name index.Name, ino index.Ino) bool {
	e, err := q.f.db.Lookup(name.Parent, name.Name)
	return err == nil && e.Ino == ino
}

// content tells of a file whose content may have changed in place.
func (q *sinceQuery) content(s index.Saved) error {
	now := q.present(s.Ino)
	if now == nil || *now == *generationOf(s) {
		return nil
	}
	n, err := q.f.db.Inode(s.Ino)
	if err != nil {
		return ignoreNotExist(err)
	}
	names, err := q.f.db.Names(&n)
	if err != nil {
		return err
	}
	for _, name := range names {
		if q.found[name] != nil {
			continue // it tells the old and the new content already
		}
		path, err := q.f.db.Path(name)
		if err != nil {
			return ignoreNotExist(err)
		}
		q.found[name] = &berth.PathChange{Path: path, Kind: berth.PathModified, File: berth.KindFile, Old: generationOf(s), New: now}
	}
	return nil
}

// before returns what a file held at the checkpoint; nil for what is no file, or
// not known.
func (q *sinceQuery) before(ino index.Ino) *berth.Generation {
	if s, ok := q.contents[ino]; ok {
		return generationOf(s)
	}
	return q.present(ino)
}

// present returns what a file holds now, nil for what is no file.
func (q *sinceQuery) present(ino index.Ino) *berth.Generation {
	n, _, err := q.f.current(ino)
	if err != nil || !n.IsFile() || n.Links == 0 {
		return nil
	}
	return &berth.Generation{Version: versionOf(&n), Size: n.Size, Time: time.Unix(0, n.Mtime).UTC()}
}

func generationOf(s index.Saved) *berth.Generation {
	n := index.Inode{Ino: s.Ino, Gen: s.Gen, Mode: index.TypeFile}
	return &berth.Generation{Version: versionOf(&n), Size: s.Size, Time: time.Unix(0, s.Mtime).UTC()}
}

// oldPath returns the path that a name had at the checkpoint.
func (q *sinceQuery) oldPath(name index.Name) (string, error) {
	dir, err := q.oldDir(name.Parent)
	return dir + name.Name, err
}

// oldDir returns what the paths in a directory began with at the checkpoint.
func (q *sinceQuery) oldDir(dir index.Ino) (string, error) {
	if dir == q.root {
		return "", nil
	}
	if path, ok := q.paths[dir]; ok {
		return path, nil
	}
	name, ok := q.places[dir]
	if !ok {
		n, err := q.f.db.Inode(dir)
		if err != nil {
			return "", err
		}
		name = index.Name{Parent: n.Parent, Name: n.Name}
	}
	path, err := q.oldPath(name)
	q.paths[dir] = path + "/"
	return path + "/", err
}
