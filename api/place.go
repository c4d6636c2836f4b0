package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/labstack/echo/v4"

	"berth"
)

// A place is one path of a tree. The path may hold any bytes that a file's name
// can; it is relative and clean.
type place struct {
	area berth.Tree // that the caller's paths begin in
	tree berth.Tree // that the path is in
	base string     // the directory the area begins at, "" for the tree's root
	path string     // below base, "" for base itself
	dir  bool       // the path was given with a slash at the end
}

// full returns the path below the tree's root, "." for the root.
func (p place) full() string { return path.Join(".", p.base, p.path) }

// String names the place in messages, as the caller wrote it.
func (p place) String() string { return fmt.Sprintf("%q", "/"+p.path) }

// The limits of Linux's file systems on names and paths.
const (
	maxName = 255
	maxPath = 4096
)

// parsePath checks a path below an area. A slash at the end, which names a
// directory, is reported and dropped. Escaped paths come from addresses and are
// decoded one segment at a time, so that an escaped slash is never a separator.
func parsePath(s string, escaped bool) (p string, dir bool, err error) {
	bad := func(why string) (string, bool, error) {
		return "", false, fmt.Errorf("invalid path %.140q: %s: %w", s, why, fs.ErrInvalid)
	}
	if len(s) > 3*maxPath {
		return bad("it is too long")
	}
	s, dir = strings.CutSuffix(s, "/")
	if s == "" {
		return "", true, nil
	}
	names := strings.Split(s, "/")
	for i, name := range names {
		if escaped {
			if name, err = url.PathUnescape(name); err != nil {
				return bad("it is not percent-encoded rightly")
			}
		}
		switch {
		case name == "":
			return bad("a name in it is empty")
		case name == "." || name == "..":
			return bad("\".\" and \"..\" are not allowed, a path cannot leave its tree")
		case strings.ContainsAny(name, "/\x00"):
			return bad("a name in it has a slash or a NUL")
		case len(name) > maxName:
			return bad(fmt.Sprintf("a name in it has %d bytes, at most %d are possible", len(name), maxName))
		}
		names[i] = name
	}
	p = strings.Join(names, "/")
	if len(p) >= maxPath {
		return bad("it is too long")
	}
	return p, dir, nil
}

// place returns the place that a files address names, if it is the principal's.
func (s *Server) place(c echo.Context, p owner) (place, error) {
	rel, dir, err := parsePath(c.Param("*"), true)
	if err != nil {
		return place{}, err
	}
	at := place{path: rel, dir: dir}
	switch area := strings.TrimSuffix(c.Path(), "/*"); {
	case strings.HasSuffix(area, "/:chat"):
		chat, err := s.chatParam(c, p)
		if err != nil {
			return place{}, err
		}
		expert, err := berth.ParseExpert(or(c.QueryParam("expert"), string(berth.DefaultExpert)))
		if err != nil {
			return place{}, err
		}
		at.tree, at.base = chat.view(p.workspace).Files(expert)
	case p.kind != kindMember:
		return place{}, fmt.Errorf("cannot reach %s: only members have files there, an API key has those of its chats: %w",
			strings.TrimPrefix(area, "/v1/files/"), fs.ErrPermission)
	case strings.HasSuffix(area, "/shared"):
		at.tree = berth.SharedTree(p.workspace)
	default:
		at.tree = berth.MemberTree(p.workspace, p.user)
	}
	at.area = at.tree
	return at.resolved(), nil
}

// resolved returns the place as it is seen in a member's machine: the team's
// directory is below the member's disk.
func (p place) resolved() place {
	if p.tree.Kind != berth.MemberDisk || p.base != "" {
		return p
	}
	if first, rest, _ := strings.Cut(p.path, "/"); first == berth.ReservedExpert {
		p.tree, p.path = berth.SharedTree(p.tree.Workspace), rest
	}
	return p
}

// treeOf returns the tree of a name if the principal may see it.
func (s *Server) treeOf(ctx context.Context, p owner, name string) (berth.Tree, error) {
	t, err := berth.ParseTree(name)
	if err != nil {
		return t, err
	}
	mine := t.Workspace == p.workspace
	switch {
	case p.kind == kindMember:
		mine = mine && (t == berth.MemberTree(p.workspace, p.user) || t == berth.SharedTree(p.workspace))
	case mine && t.Kind == berth.SessionRoot:
		chat, err := s.chat(ctx, p, t.Chat)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return t, err
		}
		mine = err == nil && chat.EndUser == t.Owner
	default:
		mine = false
	}
	if !mine {
		return t, notFound("tree", name)
	}
	return t, nil
}

// openTree opens the root of a tree in the view directory. A tree that is not
// there yet is attached first.
func (s *Server) openTree(ctx context.Context, t berth.Tree) (*os.Root, error) {
	dir := filepath.Join(s.o.ViewDir, t.String())
	open := func() (*os.Root, error) { return os.OpenRoot(dir) }
	root, err := within(ctx, s, open, closeRoot)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.o.Trees.AttachTree(ctx, t); err != nil {
			return nil, err
		}
		root, err = within(ctx, s, open, closeRoot)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open tree %s: %w", t, bare(err))
	}
	return root, nil
}

func closeRoot(r *os.Root) { r.Close() }

// bare takes the host's path out of an error of the os package.
func bare(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// fileError words an error of an operation on a place. What os.Root refuses
// because it leads out of the tree has no error number, unlike all else.
func fileError(verb string, at place, err error) error {
	if err == nil {
		return nil
	}
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	var number syscall.Errno
	if (errors.As(err, &pathErr) || errors.As(err, &linkErr)) && !errors.As(err, &number) &&
		!errors.Is(err, os.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("cannot %s %v: a symbolic link in its path leads out of the tree: %w", verb, at, fs.ErrPermission)
	}
	return fmt.Errorf("cannot %s %v: %w", verb, at, bare(err))
}
