package sync

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"berth"
	"berth/fusefs/index"
	"berth/fusefs/object"
)

// ownPrefix begins the names of the bucket that are berth's own.
const ownPrefix = ".berth/"

const maxName = 255 // bytes of one name, as everywhere in Linux

// CheckName returns an error if a file of this name could not be stored: it
// matches syscall.ENAMETOOLONG, syscall.EILSEQ (not UTF-8) or fs.ErrInvalid.
// Every other byte is allowed, control characters too.
func CheckName(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("invalid name %.40q...: %w", name, syscall.ENAMETOOLONG)
	case !utf8.ValidString(name):
		return fmt.Errorf("invalid name %q: %w", name, syscall.EILSEQ)
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		return fmt.Errorf("invalid name %q: %w", name, fs.ErrInvalid)
	}
	return nil
}

// CheckKey returns an error if a path cannot be stored under the key of the
// bucket that belongs to it; a directory's ends in a slash. The errors are
// CheckName's.
func CheckKey(key string) error {
	if len(key) > object.MaxKey {
		return fmt.Errorf("invalid key %.40q...: it has %d bytes, at most %d are allowed: %w", key, len(key), object.MaxKey, syscall.ENAMETOOLONG)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(key, "/"), "/") {
		if err := CheckName(name); err != nil {
			return err
		}
	}
	return nil
}

// holdsKeys says whether a store can have keys that begin with the prefix of a
// directory: a rename can make it too long.
func holdsKeys(prefix string) bool { return prefix == "" || CheckKey(prefix) == nil }

// trees finds the prefix of a tree by its root and back.
type trees struct {
	db *index.DB

	mu       sync.Mutex // protects the field below
	prefixes map[index.Ino]string
}

// prefix returns what the keys of a tree begin with; ok is false when there is
// no such tree (any more).
func (t *trees) prefix(root index.Ino) (prefix string, ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if prefix, ok = t.prefixes[root]; ok {
		// A tree can be removed at any time; its name is the truth.
		if now, ok, err := t.db.Tree(prefix); err != nil || ok && now == root {
			return prefix, ok, err
		}
	}
	all, err := t.db.Trees()
	if err != nil {
		return "", false, err
	}
	t.prefixes = make(map[index.Ino]string, len(all))
	for prefix, ino := range all {
		t.prefixes[ino] = prefix
	}
	prefix, ok = t.prefixes[root]
	return prefix, ok, nil
}

// dirKey returns what the keys of a directory's children begin with, which is
// also the key of its marker. The error matches fs.ErrNotExist when its tree is
// gone.
func (s *Syncer) dirKey(dir index.Ino) (string, error) {
	n, err := s.db.Inode(dir)
	if err != nil {
		return "", err
	}
	prefix, ok, err := s.trees.prefix(n.Tree)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", fmt.Errorf("tree of directory %d: %w", dir, fs.ErrNotExist)
	}
	path, err := s.db.Dir(dir)
	if err != nil || path == "" {
		return prefix, err
	}
	return prefix + path + "/", nil
}

// nameKey returns the key of one name of an inode.
func (s *Syncer) nameKey(name index.Name, dir bool) (string, error) {
	prefix, err := s.dirKey(name.Parent)
	if err != nil {
		return "", err
	}
	if dir {
		return prefix + name.Name + "/", nil
	}
	return prefix + name.Name, nil
}

// A place is where a key belongs in the namespace.
type place struct {
	name  index.Name
	entry index.Entry // zero when nothing is there
	dir   bool        // the key is a directory's marker
	wants bool        // the entry's directory is to have a marker
}

// holds says whether the bucket should have an object of this very key: a file or
// symlink has it, or a directory that is more than the prefix of what is in it.
func (p place) holds() bool {
	switch p.entry.Type {
	case index.TypeDir:
		return p.dir && p.wants
	case index.TypeFile, index.TypeSymlink, 0:
		return !p.dir && p.entry.Ino != 0
	}
	return false // kept on this machine only
}

// find returns the place of a key. Its name is zero when the directory that it
// would be in does not exist, or the key is a root's own.
func (s *Syncer) find(key string) (place, error) {
	root, path, ok, err := s.treeOf(key)
	if err != nil || !ok || path == "" {
		return place{}, err
	}
	p := place{dir: strings.HasSuffix(path, "/")}
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	at := root
	for i, part := range parts {
		e, err := s.db.Lookup(at, part)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return place{}, err
		}
		if i == len(parts)-1 {
			p.name, p.entry = index.Name{Parent: at, Name: part}, e
			p.wants, err = s.wantsMarker(e)
			return p, err
		}
		if err != nil || e.Type != index.TypeDir {
			return place{dir: p.dir}, nil
		}
		at = e.Ino
	}
	return p, nil
}

// wantsMarker says whether an entry is a directory that is to have a marker.
func (s *Syncer) wantsMarker(e index.Entry) (bool, error) {
	if e.Type != index.TypeDir {
		return false, nil
	}
	n, err := s.db.Inode(e.Ino)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // removed since it was looked up
	}
	return n.Explicit, err
}

// treeOf returns the tree that a key belongs to and the key's path in it.
func (s *Syncer) treeOf(key string) (root index.Ino, path string, ok bool, err error) {
	for at := 0; at <= len(key); at++ {
		if at > 0 && key[at-1] != '/' {
			continue
		}
		root, ok, err = s.db.Tree(key[:at])
		if err != nil || ok {
			return root, key[at:], ok, err
		}
	}
	return 0, "", false, nil
}

// hides says whether a name that the bucket has in a directory is not shown.
func hides(prefix, name string) bool {
	if CheckName(name) != nil || prefix == "" && name+"/" == ownPrefix {
		return true
	}
	if name != berth.ReservedExpert {
		return false
	}
	tree, err := berth.ParseTree(strings.TrimSuffix(prefix, "/"))
	return err == nil && tree.Kind == berth.MemberDisk
}

// hidden counts the names that listings had and did not show, by directory.
type hidden struct {
	mu    sync.Mutex // protects the field below
	names map[index.Ino]int
}

func (h *hidden) set(dir index.Ino, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.names == nil {
		h.names = make(map[index.Ino]int)
	}
	if n == 0 {
		delete(h.names, dir)
	} else {
		h.names[dir] = n
	}
}

func (h *hidden) total() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, names := range h.names {
		n += names
	}
	return n
}
