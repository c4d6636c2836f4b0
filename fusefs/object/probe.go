package object

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"

	"berth"
)

// Abilities say what a store can do, as Probe found it out.
type Abilities struct {
	PutIfNoneMatch       bool `json:"put_if_none_match"`       // a PUT that must not replace anything
	PutIfMatch           bool `json:"put_if_match"`            // a PUT that must replace what was seen
	DeleteIfMatch        bool `json:"delete_if_match"`         // a DELETE that must remove what was seen
	MultipartIfNoneMatch bool `json:"multipart_if_none_match"` // conditions when a large upload is completed
	Metadata             bool `json:"metadata"`                // metadata is kept exactly
	Copy                 bool `json:"copy"`                    // copies on the store's side, pinned to an ETag
	Overlap              bool `json:"overlap"`                 // "a" and "a/b" can both exist
}

// An Ability is one line of Abilities.Explain.
type Ability struct {
	Name string // such as "conditional PUT"
	Have bool
	Text string // what that means for the operator
}

// Explain says of each ability what it means that the store has it or lacks it.
func (a Abilities) Explain() []Ability {
	line := func(name string, have bool, with, without string) Ability {
		if have {
			return Ability{name, true, with}
		}
		return Ability{name, false, without}
	}
	return []Ability{
		line("conditional PUT", a.PutIfMatch && a.PutIfNoneMatch,
			"a write never replaces one that berth has not seen",
			"two gateways, or a gateway and another tool, that write one file within the same moment can lose the later write; "+
				"use this bucket with one gateway only"),
		line("conditional multipart completion", a.MultipartIfNoneMatch,
			"the same holds for files above 64 MiB",
			"for files above 64 MiB such a write is checked before the upload only, so one that comes meanwhile can be replaced"),
		line("conditional DELETE", a.DeleteIfMatch,
			"a delete never removes a version that berth has not seen",
			"a file that another tool rewrites in the moment it is deleted or renamed here can be lost"),
		line("metadata", a.Metadata,
			"modes, times and attributes of files are kept in the bucket",
			"modes, times and attributes are lost when a file is read back from the bucket: every file is 0644 with the time of its upload"),
		line("copy", a.Copy,
			"a renamed directory is copied within the store",
			"a renamed directory is uploaded again, file by file"),
		line("overlapping keys", a.Overlap,
			"a file and a directory of one name can both be stored",
			"a name that turns from a file into a directory is stored after the old objects are deleted, never beside them"),
	}
}

// ProbePrefix begins the keys of the objects that Probe makes and removes.
const ProbePrefix = ".berth/probe/"

// Probe finds out by real requests what the store can do and removes what it
// made. An error means that not even plain requests work: it says which.
func Probe(ctx context.Context, s Store) (Abilities, error) {
	var unique [8]byte
	rand.Read(unique[:])
	p := &prober{ctx: ctx, s: s, dir: ProbePrefix + hex.EncodeToString(unique[:]) + "/"}
	a, err := p.run()
	if cleanErr := p.clean(); err == nil {
		err = cleanErr
	}
	if err != nil {
		return Abilities{}, fmt.Errorf("cannot probe the store: %w", err)
	}
	return a, nil
}

type prober struct {
	ctx  context.Context
	s    Store
	dir  string
	made []string
}

func (p *prober) put(name, body string, o PutOptions) (Info, error) {
	p.made = append(p.made, p.dir+name)
	return p.s.Put(p.ctx, p.dir+name, bytes.NewReader([]byte(body)), int64(len(body)), o)
}

// refused tells a condition that the store honoured from one that it ignored or
// does not know. Only a store that cannot be reached is an error.
func refused(err error) (bool, error) {
	switch {
	case errors.Is(err, ErrPrecondition):
		return true, nil
	case errors.Is(err, berth.ErrUnavailable), errors.Is(err, context.Canceled):
		return false, err
	}
	return false, nil
}

// worked tells a request that a store did from one it does not know.
func worked(err error) (bool, error) {
	if _, bad := refused(err); bad != nil {
		return false, bad
	}
	return err == nil, nil
}

func (p *prober) run() (a Abilities, err error) {
	metadata := map[string]string{"file-permissions": "0100644", "berth-probe": "\u00fc"}
	first, err := p.put("a", "1", PutOptions{Metadata: metadata})
	if err != nil {
		return a, err
	}
	head, err := p.s.Head(p.ctx, p.dir+"a")
	if err != nil {
		return a, err
	}
	a.Metadata = head.Metadata["file-permissions"] == metadata["file-permissions"] && head.Metadata["berth-probe"] == metadata["berth-probe"]
	for _, step := range []func(*Abilities, Info) error{p.conditionalPut, p.multipart, p.copy, p.overlap, p.conditionalDelete} {
		if err := step(&a, first); err != nil {
			return a, err
		}
	}
	return a, nil
}

// conditionalPut leaves generation "2" at "a".
func (p *prober) conditionalPut(a *Abilities, first Info) error {
	_, err := p.put("a", "0", PutOptions{IfNoneMatch: true})
	no, err := refused(err)
	if err != nil {
		return err
	}
	_, err = p.put("new", "1", PutOptions{IfNoneMatch: true})
	yes, err := worked(err)
	if err != nil {
		return err
	}
	a.PutIfNoneMatch = no && yes

	if _, err = p.put("a", "1", PutOptions{}); err != nil {
		return err
	}
	_, err = p.put("a", "2", PutOptions{IfMatch: first.ETag})
	if yes, err = worked(err); err != nil {
		return err
	}
	_, err = p.put("a", "3", PutOptions{IfMatch: first.ETag})
	if no, err = refused(err); err != nil {
		return err
	}
	a.PutIfMatch = no && yes
	return nil
}

func (p *prober) multipart(a *Abilities, _ Info) error {
	_, err := p.put("parts", "1", PutOptions{IfNoneMatch: true, InParts: true})
	yes, err := worked(err)
	if err != nil {
		return err
	}
	_, err = p.put("parts", "2", PutOptions{IfNoneMatch: true, InParts: true})
	no, err := refused(err)
	a.MultipartIfNoneMatch = no && yes
	return err
}

func (p *prober) copy(a *Abilities, _ Info) error {
	p.made = append(p.made, p.dir+"copy")
	src, err := p.s.Head(p.ctx, p.dir+"a")
	if err != nil {
		return err
	}
	_, err = p.s.Copy(p.ctx, p.dir+"copy", src.Key, CopyOptions{SourceETag: src.ETag})
	yes, err := worked(err)
	if err != nil {
		return err
	}
	_, err = p.s.Copy(p.ctx, p.dir+"copy", src.Key, CopyOptions{SourceETag: otherETag})
	no, err := refused(err)
	a.Copy = no && yes
	return err
}

func (p *prober) overlap(a *Abilities, _ Info) error {
	_, err := p.put("a/below", "1", PutOptions{})
	a.Overlap, err = worked(err)
	return err
}

// otherETag is the ETag of no content that the probe writes.
const otherETag = "0123456789abcdef0123456789abcdef"

func (p *prober) conditionalDelete(a *Abilities, _ Info) error {
	key := p.dir + "new"
	info, err := p.s.Head(p.ctx, key)
	if err != nil {
		return err
	}
	no, err := refused(p.s.Delete(p.ctx, key, otherETag))
	if err != nil || !no {
		return err
	}
	if yes, err := worked(p.s.Delete(p.ctx, key, info.ETag)); err != nil || !yes {
		return err
	}
	_, err = p.s.Head(p.ctx, key)
	a.DeleteIfMatch = errors.Is(err, fs.ErrNotExist)
	_, err = worked(err)
	return err
}

// clean removes what the probe made, those below others first.
func (p *prober) clean() error {
	var first error
	for i := len(p.made) - 1; i >= 0; i-- {
		if err := p.s.Delete(p.ctx, p.made[i], ""); err != nil && first == nil {
			first = err
		}
	}
	return first
}
