package index

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"strings"
)

// Inode returns an inode, or an error matching fs.ErrNotExist.
func (db *DB) Inode(ino Ino) (Inode, error) {
	n, seq, ok := db.inodes.get(ino)
	if ok {
		return n, nil
	}
	v, ok, err := db.get(inoKey(tableInode, ino))
	if err != nil {
		return Inode{}, err
	}
	if !ok {
		return Inode{}, fmt.Errorf("inode %d: %w", ino, fs.ErrNotExist)
	}
	if n, err = decodeInode(ino, v); err != nil {
		return Inode{}, err
	}
	db.inodes.fill(ino, n, seq)
	return n, nil
}

// Lookup returns the entry of a name, or an error matching fs.ErrNotExist.
func (db *DB) Lookup(parent Ino, name string) (Entry, error) {
	e, seq, ok := db.entries.get(Name{parent, name})
	if !ok {
		v, there, err := db.get(entryKey(parent, name))
		if err == nil && there {
			e, err = decodeEntry(name, v)
		}
		if err != nil {
			return Entry{}, err
		}
		db.entries.fill(Name{parent, name}, e, seq)
	}
	if e.Ino == 0 {
		return Entry{}, &missing{parent, name}
	}
	return e, nil
}

// A missing says that a directory has no such name. It is a type of its own since
// it is made often and seldom printed.
type missing struct {
	parent Ino
	name   string
}

func (m *missing) Error() string {
	return fmt.Sprintf("%q in directory %d: %v", m.name, m.parent, fs.ErrNotExist)
}

func (m *missing) Unwrap() error { return fs.ErrNotExist }

// Entries returns up to limit entries of a directory whose names sort after the
// given one ("" = from the first), by name in byte order.
func (db *DB) Entries(parent Ino, after string, limit int) ([]Entry, error) {
	prefix := inoKey(tableEntry, parent)
	from := prefix
	if after != "" {
		from = append(entryKey(parent, after), 0)
	}
	var out []Entry
	var bad error
	err := db.scan(prefix, from, func(k, v []byte) bool {
		e, err := decodeEntry(string(k[len(prefix):]), v)
		if err != nil {
			bad = err
			return false
		}
		out = append(out, e)
		return len(out) < limit
	})
	if err == nil {
		err = bad
	}
	return out, err
}

// Names returns the directory entries of an inode: one for a directory that is
// no root, each link for others, none for an orphan or a root.
func (db *DB) Names(n *Inode) ([]Name, error) {
	if n.IsDir() {
		if n.Parent == 0 {
			return nil, nil
		}
		return []Name{{n.Parent, n.Name}}, nil
	}
	name, seq, ok := db.names.get(n.Ino)
	if ok {
		return []Name{name}, nil
	}
	prefix := inoKey(tableName, n.Ino)
	var out []Name
	err := db.scan(prefix, nil, func(k, _ []byte) bool {
		out = append(out, Name{Ino(binary.BigEndian.Uint64(k[9:])), string(k[17:])})
		return true
	})
	if err == nil && len(out) == 1 {
		db.names.fill(n.Ino, out[0], seq)
	}
	return out, err
}

// maxDepth bounds a walk to the root, so that a damaged index cannot loop.
const maxDepth = 4096

// Dir returns the path of a directory below its tree's root, without slashes at
// the ends, "" for the root.
func (db *DB) Dir(ino Ino) (string, error) {
	var parts []string
	for depth := 0; ; depth++ {
		n, err := db.Inode(ino)
		if err != nil {
			return "", err
		}
		if n.Parent == 0 {
			break
		}
		if depth == maxDepth {
			return "", fmt.Errorf("cannot find path of directory %d: %w", ino, errCorrupt)
		}
		parts = append(parts, n.Name)
		ino = n.Parent
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, "/"), nil
}

// Path returns the path of a name below its tree's root.
func (db *DB) Path(name Name) (string, error) {
	dir, err := db.Dir(name.Parent)
	if err != nil || dir == "" {
		return name.Name, err
	}
	return dir + "/" + name.Name, nil
}

// Remote returns what is known under a key; ok is false when nothing is.
func (db *DB) Remote(key string) (r Remote, ok bool, err error) {
	v, ok, err := db.get(stringKey(tableRemote, key))
	if err != nil || !ok {
		return Remote{}, false, err
	}
	r, err = decodeRemote(key, v)
	return r, err == nil, err
}

// Remotes calls f for each Remote whose key begins with prefix and sorts at or
// after from ("" = all), by key, until f returns false.
func (db *DB) Remotes(prefix, from string, f func(Remote) bool) error {
	var start []byte
	if from > prefix {
		start = stringKey(tableRemote, from)
	}
	var bad error
	err := db.scan(stringKey(tableRemote, prefix), start, func(k, v []byte) bool {
		r, err := decodeRemote(string(k[1:]), v)
		if err != nil {
			bad = err
			return false
		}
		return f(r)
	})
	if err == nil {
		err = bad
	}
	return err
}

// Queue calls f for each inode in the upload queue until f returns false.
func (db *DB) Queue(f func(ino Ino, queuedAt int64) bool) error {
	return db.scan([]byte{tableQueue}, nil, func(k, v []byte) bool {
		return f(keyIno(k), int64(binary.BigEndian.Uint64(v)))
	})
}

// Queued says whether an inode is in the upload queue.
func (db *DB) Queued(ino Ino) (bool, error) {
	_, ok, err := db.get(inoKey(tableQueue, ino))
	return ok, err
}

// Doomed calls f for each key of the doom list until f returns false.
func (db *DB) Doomed(f func(key string) bool) error {
	return db.scan([]byte{tableDoom}, nil, func(k, _ []byte) bool { return f(string(k[1:])) })
}

// OpenMarks calls f for each inode that may have been written to.
func (db *DB) OpenMarks(f func(Ino, OpenMark) bool) error {
	var bad error
	err := db.scan([]byte{tableOpen}, nil, func(k, v []byte) bool {
		m, err := decodeOpenMark(v)
		if err != nil {
			bad = err
			return false
		}
		return f(keyIno(k), m)
	})
	if err == nil {
		err = bad
	}
	return err
}

// OpenMark returns the mark of one inode.
func (db *DB) OpenMark(ino Ino) (m OpenMark, ok bool, err error) {
	v, ok, err := db.get(inoKey(tableOpen, ino))
	if err != nil || !ok {
		return OpenMark{}, false, err
	}
	m, err = decodeOpenMark(v)
	return m, err == nil, err
}

// Orphans returns the inodes without a name that were open.
func (db *DB) Orphans() ([]Ino, error) {
	var out []Ino
	err := db.scan([]byte{tableOrphan}, nil, func(k, _ []byte) bool {
		out = append(out, keyIno(k))
		return true
	})
	return out, err
}

// Moves returns the directory renames under way, oldest first.
func (db *DB) Moves() ([]Move, error) {
	var out []Move
	var bad error
	err := db.scan([]byte{tableMove}, nil, func(k, v []byte) bool {
		d := newDecoder(v)
		out = append(out, Move{Seq: uint64(keyIno(k)), OldPrefix: d.string(), Dir: Ino(d.uint())})
		bad = d.err("move")
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	return out, err
}

// Tree returns the root inode of the tree with a prefix ("" = the whole bucket,
// else ending in a slash); ok is false when the index has no such tree.
func (db *DB) Tree(prefix string) (root Ino, ok bool, err error) {
	v, ok, err := db.get(stringKey(tableTree, prefix))
	if err != nil || !ok || len(v) != 8 {
		return 0, false, err
	}
	return Ino(binary.BigEndian.Uint64(v)), true, nil
}

// Trees returns the prefix of each tree and its root.
func (db *DB) Trees() (map[string]Ino, error) {
	out := make(map[string]Ino)
	err := db.scan([]byte{tableTree}, nil, func(k, v []byte) bool {
		out[string(k[1:])] = Ino(binary.BigEndian.Uint64(v))
		return true
	})
	return out, err
}

// Setting returns a number kept under a name, 0 when there is none.
func (db *DB) Setting(name string) (uint64, error) {
	v, ok, err := db.get(settingKey(name))
	if err != nil || !ok || len(v) != 8 {
		return 0, err
	}
	return binary.BigEndian.Uint64(v), nil
}

// Text returns a string kept under a name, "" when there is none.
func (db *DB) Text(name string) (string, error) {
	v, _, err := db.get(settingKey("text/" + name))
	return string(v), err
}

func keyIno(k []byte) Ino { return Ino(binary.BigEndian.Uint64(k[1:])) }

func decodeEntry(name string, v []byte) (Entry, error) {
	d := newDecoder(v)
	e := Entry{Name: name, Ino: Ino(d.uint()), Type: uint32(d.uint())}
	return e, d.err(fmt.Sprintf("entry %q", name))
}
