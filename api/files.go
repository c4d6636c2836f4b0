package api

import (
	"context"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/labstack/echo/v4"
)

// cursorHeader carries the position of the event streams at the time of an
// answer: a stream from there misses nothing that the answer does not show.
const cursorHeader = "Berth-Cursor"

// An opened is a regular file or a directory, open, with the root of its tree.
type opened struct {
	root *os.Root
	file *os.File
	info fs.FileInfo
}

func (o opened) close() {
	if o.file != nil {
		o.file.Close()
	}
	o.root.Close()
}

// open opens a place for reading. Nothing but regular files and directories is
// opened, and opening never waits for another process, as a fifo would: what
// the path names may change between the look and the opening.
func (s *Server) open(ctx context.Context, at place) (opened, error) {
	root, err := s.openTree(ctx, at.tree)
	if err != nil {
		return opened{}, err
	}
	o, err := within(ctx, s, func() (opened, error) { return openIn(root, at) }, opened.close)
	if err != nil {
		root.Close()
	}
	return o, fileError("read", at, err)
}

func openIn(root *os.Root, at place) (opened, error) {
	info, err := root.Stat(at.full())
	if err != nil {
		return opened{}, err
	}
	if err := servable(info); err != nil {
		return opened{}, err
	}
	if at.dir && !info.IsDir() {
		return opened{}, syscall.ENOTDIR
	}
	f, err := root.OpenFile(at.full(), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return opened{}, err
	}
	info, err = f.Stat()
	if err == nil {
		err = servable(info)
	}
	if err != nil {
		f.Close()
		return opened{}, err
	}
	return opened{root, f, info}, nil
}

// servable refuses what is neither a regular file nor a directory, by name.
func servable(info fs.FileInfo) error {
	what := ""
	switch mode := info.Mode(); {
	case mode.IsRegular() || mode.IsDir():
		return nil
	case mode&fs.ModeNamedPipe != 0:
		what = "a fifo"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	default:
		what = "neither a file nor a directory"
	}
	return fmt.Errorf("it is %s: %w", what, errUnsupported)
}

// getFile sends a file, with ranges and an ETag, or lists a directory.
func (s *Server) getFile(c echo.Context, p owner) error {
	at, err := s.place(c, p)
	if err != nil {
		return err
	}
	if past := s.pastOf(c); past != nil {
		return past(c, at)
	}
	at.dir = at.dir || c.QueryParam("list") == "1"
	r, h := c.Request(), c.Response().Header()
	h.Set(cursorHeader, s.o.Feed.Cursor())
	o, err := s.open(r.Context(), at)
	if err != nil {
		return s.orEmpty(c, at, err)
	}
	defer o.close()
	if o.info.IsDir() {
		return s.sendListing(c, at, o)
	}
	// No browser runs, frames or guesses at what a machine wrote.
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	kind, inline := contentType(at.path)
	h.Set("Content-Type", kind)
	if !inline || c.QueryParam("download") == "1" {
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{
			"filename": strings.ToValidUTF8(path.Base(at.path), "_")}))
	}
	h.Set("ETag", etag(o.info))
	h.Set("Cache-Control", "private, no-cache")
	f := &servedFile{ctx: r.Context(), s: s, f: o.file, size: o.info.Size(), out: http.NewResponseController(c.Response())}
	http.ServeContent(c.Response(), r, "", o.info.ModTime(), f)
	return nil
}

// contentType returns the type to send a file as, and whether a browser may
// show it by itself. Only what cannot carry a script keeps its type.
func contentType(name string) (kind string, inline bool) {
	switch strings.ToLower(path.Ext(name)) {
	case ".png":
		return "image/png", true
	case ".jpg", ".jpeg":
		return "image/jpeg", true
	case ".gif":
		return "image/gif", true
	case ".webp":
		return "image/webp", true
	case ".avif":
		return "image/avif", true
	case ".ico":
		return "image/x-icon", true
	case ".svg": // shown by <img>, where it is inert; opened by itself it is a download
		return "image/svg+xml", false
	case ".txt", ".md", ".csv", ".log", ".json", ".py", ".go", ".ts", ".css":
		return "text/plain; charset=utf-8", true
	}
	return "application/octet-stream", false
}

// etag names a file's content as far as its attributes tell: the change time
// moves even where size and modification time are set back.
func etag(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Sprintf(`"%x-%x"`, info.Size(), info.ModTime().UnixNano())
	}
	return fmt.Sprintf(`"%x-%x-%x-%x"`, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
}
