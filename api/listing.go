package api

import (
	"container/heap"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"berth"
)

// maxPage is the largest number of names in one answer.
const maxPage = 1000

type entryAnswer struct {
	Name      string         `json:"name"`
	NameBytes []byte         `json:"name_base64,omitempty"` // when the name is not UTF-8
	Kind      berth.FileKind `json:"kind"`
	Size      int64          `json:"size"`
	MTime     time.Time      `json:"mtime"`
	Mode      string         `json:"mode"` // octal permissions
	Target    string         `json:"target,omitempty"`
}

type listingAnswer struct {
	Entries []entryAnswer `json:"entries"`
	Next    string        `json:"next,omitempty"`
}

// limitParam returns the limit that a request asks for, at most most.
func limitParam(c echo.Context, most int) (int, error) {
	v := c.QueryParam("limit")
	if v == "" {
		return most, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("invalid limit %.40q: it is not a number from 1 on: %w", v, fs.ErrInvalid)
	}
	return min(n, most), nil
}

// sendListing answers one page of a directory, by the bytes of the names.
func (s *Server) sendListing(c echo.Context, at place, o opened) error {
	limit, err := limitParam(c, maxPage)
	if err != nil {
		return err
	}
	after, err := base64.RawURLEncoding.DecodeString(c.QueryParam("after"))
	if err != nil || len(after) > maxName {
		return fmt.Errorf("invalid after %.140q: it is not the \"next\" of a page before: %w", c.QueryParam("after"), fs.ErrInvalid)
	}
	ctx := c.Request().Context()
	page, err := within(ctx, s, func() (listingAnswer, error) {
		return listPage(ctx, o.root, o.file, at.full(), string(after), limit)
	}, nil)
	if err != nil {
		return fileError("list", at, err)
	}
	return c.JSON(http.StatusOK, page)
}

// listPage reads the whole directory, in pieces, and keeps the first names after
// the given one: the memory it takes depends on limit alone.
func listPage(ctx context.Context, root *os.Root, dir *os.File, base, after string, limit int) (listingAnswer, error) {
	page := listingAnswer{Entries: []entryAnswer{}}
	var first largestFirst // of the names after it, the limit+1 smallest
	for ctx.Err() == nil {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if name <= after {
				continue
			}
			if len(first) <= limit {
				heap.Push(&first, name)
			} else if name < first[0] {
				first[0] = name
				heap.Fix(&first, 0)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return page, err
		}
	}
	names := []string(first)
	slices.Sort(names)
	if len(names) > limit {
		names = names[:limit]
		page.Next = base64.RawURLEncoding.EncodeToString([]byte(names[limit-1]))
	}
	here, err := root.OpenRoot(base) // so that each name is one step away
	if err != nil {
		return page, err
	}
	defer here.Close()
	for _, name := range names {
		if ctx.Err() != nil {
			return page, context.Cause(ctx)
		}
		entry, err := entryOf(here, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was read
		} else if err != nil {
			return page, err
		}
		page.Entries = append(page.Entries, entry)
	}
	return page, ctx.Err()
}

func entryOf(dir *os.Root, name string) (entryAnswer, error) {
	info, err := dir.Lstat(name)
	if err != nil {
		return entryAnswer{}, err
	}
	e := entryAnswer{
		Name: name, Kind: kindOf(info.Mode()), Size: info.Size(), MTime: info.ModTime().UTC(),
		Mode: fmt.Sprintf("%04o", info.Mode().Perm()),
	}
	if !utf8.ValidString(name) {
		e.NameBytes = []byte(name)
	}
	if e.Kind == berth.KindSymlink {
		if e.Target, err = dir.Readlink(name); errors.Is(err, fs.ErrInvalid) {
			err = nil // replaced since: it is no link any more
		}
	}
	return e, err
}

func kindOf(mode fs.FileMode) berth.FileKind {
	switch {
	case mode.IsRegular():
		return berth.KindFile
	case mode.IsDir():
		return berth.KindDir
	case mode&fs.ModeSymlink != 0:
		return berth.KindSymlink
	}
	return berth.KindOther
}

// orEmpty lists the working directory of a chat that has had no use yet, and so
// has no directory, as empty. Any other error stays.
func (s *Server) orEmpty(c echo.Context, at place, err error) error {
	if errors.Is(err, fs.ErrNotExist) && at.base != "" && at.path == "" {
		return c.JSON(http.StatusOK, listingAnswer{Entries: []entryAnswer{}})
	}
	return err
}

// largestFirst is a heap of names with the largest at the top.
type largestFirst []string

func (h largestFirst) Len() int           { return len(h) }
func (h largestFirst) Less(i, j int) bool { return h[i] > h[j] }
func (h largestFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *largestFirst) Push(x any)        { *h = append(*h, x.(string)) }
func (h *largestFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
