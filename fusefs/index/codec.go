package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
)

// version is the first byte of every value.
const version = 3

var (
	errCorrupt = errors.New("the record is damaged or from a newer version of berth")
	errOther   = errors.New("flush and stop with the berth that made it, remove the index and cache directories, start again")
)

// An encoder appends fields to a value; a decoder reads them in the same order.
type encoder struct{ b []byte }

func newEncoder(size int) *encoder { return &encoder{append(make([]byte, 0, size), version)} }

func (e *encoder) uint(v uint64)   { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)     { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) string(s string) { e.uint(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) stamp(s Stamp)   { e.uint(s.Time); e.string(s.Gateway) }
func (e *encoder) bools(v ...bool) {
	var bits uint64
	for i, x := range v {
		if x {
			bits |= 1 << i
		}
	}
	e.uint(bits)
}

type decoder struct {
	b   []byte
	bad bool
}

func newDecoder(b []byte) *decoder {
	if len(b) == 0 || b[0] != version {
		return &decoder{bad: true}
	}
	return &decoder{b: b[1:]}
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) string() string { return string(d.bytes()) }
func (d *decoder) stamp() Stamp   { return Stamp{d.uint(), d.string()} }
func (d *decoder) bools(v ...*bool) {
	bits := d.uint()
	for i, x := range v {
		*x = bits&(1<<i) != 0
	}
}

func (d *decoder) err(what string) error {
	if d.bad {
		return fmt.Errorf("cannot read %s: %w", what, errCorrupt)
	}
	return nil
}

func (n *Inode) encode() []byte {
	e := newEncoder(128)
	e.uint(uint64(n.Tree))
	e.uint(uint64(n.Parent))
	e.string(n.Name)
	e.uint(uint64(n.Mode))
	e.uint(uint64(n.UID))
	e.uint(uint64(n.GID))
	e.int(n.Size)
	e.int(n.Mtime)
	e.int(n.Ctime)
	e.int(n.Atime)
	e.uint(uint64(n.Links))
	e.uint(uint64(n.Others))
	e.uint(uint64(n.Subdirs))
	e.uint(uint64(n.Below))
	e.string(n.Target)
	e.uint(n.Gen)
	e.stamp(n.Stamp)
	e.stamp(n.AttrStamp)
	e.bools(n.Remote, n.Bare, n.Explicit, n.Unseen)
	e.int(n.Listed)
	names := make([]string, 0, len(n.Xattrs))
	for name := range n.Xattrs {
		names = append(names, name)
	}
	sort.Strings(names)
	e.uint(uint64(len(names)))
	for _, name := range names {
		e.string(name)
		e.string(string(n.Xattrs[name]))
	}
	return e.b
}

func decodeInode(ino Ino, b []byte) (Inode, error) {
	d := newDecoder(b)
	n := Inode{Ino: ino, Tree: Ino(d.uint()), Parent: Ino(d.uint()), Name: d.string(),
		Mode: uint32(d.uint()), UID: uint32(d.uint()), GID: uint32(d.uint()),
		Size: d.int(), Mtime: d.int(), Ctime: d.int(), Atime: d.int(), Links: uint32(d.uint()), Others: uint32(d.uint()),
		Subdirs: uint32(d.uint()), Below: uint32(d.uint()), Target: d.string(),
		Gen: d.uint(), Stamp: d.stamp(), AttrStamp: d.stamp()}
	d.bools(&n.Remote, &n.Bare, &n.Explicit, &n.Unseen)
	n.Listed = d.int()
	if count := d.uint(); count > 0 && !d.bad {
		n.Xattrs = make(map[string][]byte)
		for i := uint64(0); i < count && !d.bad; i++ {
			name := d.string()
			n.Xattrs[name] = append([]byte{}, d.bytes()...)
		}
	}
	return n, d.err(fmt.Sprintf("inode %d", ino))
}

func (r *Remote) encode() []byte {
	e := newEncoder(128)
	e.string(r.ETag)
	e.int(r.LastModified)
	e.int(r.Size)
	e.uint(uint64(r.Ino))
	e.uint(r.Gen)
	e.stamp(r.Stamp)
	e.stamp(r.AttrStamp)
	e.bools(r.Doomed)
	e.int(r.StoredAt)
	e.uint(uint64(r.Intent.Ino))
	e.uint(r.Intent.Gen)
	e.stamp(r.Intent.Stamp)
	e.stamp(r.Intent.AttrStamp)
	return e.b
}

func decodeRemote(key string, b []byte) (Remote, error) {
	d := newDecoder(b)
	r := Remote{Key: key, ETag: d.string(), LastModified: d.int(), Size: d.int(),
		Ino: Ino(d.uint()), Gen: d.uint(), Stamp: d.stamp(), AttrStamp: d.stamp()}
	d.bools(&r.Doomed)
	r.StoredAt = d.int()
	r.Intent = Intent{Ino: Ino(d.uint()), Gen: d.uint(), Stamp: d.stamp(), AttrStamp: d.stamp()}
	return r, d.err("remote " + key)
}

func (m *OpenMark) encode() []byte {
	e := newEncoder(32)
	e.int(m.Size)
	e.int(m.Mtime)
	e.int(m.Ctime)
	e.bools(m.Fresh, m.Swap)
	return e.b
}

func decodeOpenMark(b []byte) (OpenMark, error) {
	d := newDecoder(b)
	m := OpenMark{Size: d.int(), Mtime: d.int(), Ctime: d.int()}
	d.bools(&m.Fresh, &m.Swap)
	return m, d.err("open mark")
}
