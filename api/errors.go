package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/preview"
)

// ErrLimit says that a limit on use is met: the request may succeed later.
// ErrTooLarge says that what was sent or asked for is larger than allowed.
var (
	ErrLimit    = errors.New("a limit is met")
	ErrTooLarge = errors.New("too large")
)

var (
	errUnauthorized = errors.New("not signed in")
	errUnsupported  = errors.New("not a regular file")
	errRevoked      = fmt.Errorf("the access was revoked: %w", errUnauthorized)
	errStopping     = fmt.Errorf("the gateway is stopping: %w", berth.ErrUnavailable)
)

// errorTable maps errors to answers; the first that matches counts. What
// matches nothing is an internal error, whose cause is logged and not told.
var errorTable = []struct {
	is     error
	status int
	code   string
}{
	{errUnauthorized, http.StatusUnauthorized, "unauthorized"},
	{ErrTooLarge, http.StatusRequestEntityTooLarge, "too_large"},
	{preview.ErrTooLarge, http.StatusRequestEntityTooLarge, "too_large"},
	{errPrecondition, http.StatusPreconditionFailed, "conflict"},
	{errLink, http.StatusConflict, "conflict"},
	{errUnsupported, http.StatusUnsupportedMediaType, "invalid"},
	{ErrLimit, http.StatusTooManyRequests, "rate_limited"},
	{berth.ErrUnavailable, http.StatusServiceUnavailable, "unavailable"},
	{berth.ErrConflict, http.StatusConflict, "conflict"},
	{syscall.ENOTEMPTY, http.StatusConflict, "conflict"}, // before fs.ErrExist, which it matches
	{syscall.EBUSY, http.StatusConflict, "conflict"},
	{syscall.EISDIR, http.StatusConflict, "conflict"},
	{syscall.ENOTDIR, http.StatusConflict, "conflict"},
	{syscall.EXDEV, http.StatusConflict, "conflict"},
	{syscall.ENAMETOOLONG, http.StatusBadRequest, "invalid"},
	{syscall.EILSEQ, http.StatusBadRequest, "invalid"}, // a name that the file system does not take
	{syscall.EINVAL, http.StatusBadRequest, "invalid"},
	{syscall.ELOOP, http.StatusBadRequest, "invalid"},
	{syscall.EFBIG, http.StatusRequestEntityTooLarge, "too_large"},
	{syscall.EDQUOT, http.StatusInsufficientStorage, "too_large"},
	{syscall.ENOSPC, http.StatusInsufficientStorage, "too_large"},
	{syscall.EROFS, http.StatusForbidden, "forbidden"},
	{syscall.ENOTCONN, http.StatusServiceUnavailable, "unavailable"}, // mountd is away
	{syscall.EIO, http.StatusServiceUnavailable, "unavailable"},      // the store could not give it
	{berth.ErrNotKept, http.StatusGone, "not_found"},
	{fs.ErrNotExist, http.StatusNotFound, "not_found"},
	{fs.ErrExist, http.StatusConflict, "conflict"},
	{fs.ErrPermission, http.StatusForbidden, "forbidden"},
	{fs.ErrInvalid, http.StatusBadRequest, "invalid"},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, "unavailable"},
	{context.Canceled, http.StatusServiceUnavailable, "unavailable"},
}

// problem is the JSON of every error answer.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// answerTo returns the status and body for an error.
func answerTo(err error) (int, problem) {
	var routing *echo.HTTPError
	var body *http.MaxBytesError
	switch {
	case errors.As(err, &body):
		return http.StatusRequestEntityTooLarge,
			problem{"too_large", fmt.Sprintf("the request body is larger than %d bytes", body.Limit)}
	case errors.As(err, &routing) && routing.Code == http.StatusMethodNotAllowed:
		return routing.Code, problem{"invalid", "this path does not know the method; the Allow header lists those it knows"}
	case errors.As(err, &routing) && routing.Code == http.StatusNotFound:
		return routing.Code, problem{"not_found", "there is no such path; GET /v1/openapi.yaml describes those there are"}
	}
	for _, row := range errorTable {
		if errors.Is(err, row.is) {
			return row.status, problem{row.code, messageOf(err, row.is)}
		}
	}
	return http.StatusInternalServerError, problem{"internal", "the gateway met an error that it did not expect; its log has the cause"}
}

// messageOf returns the error's text for a caller. Where the text tells a cause
// of its own, the words of the sentinel that only sorts it are left out.
func messageOf(err, sentinel error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if short, ok := strings.CutSuffix(text, ": "+sentinel.Error()); ok && strings.Contains(short, ": ") {
		return short
	}
	return text
}

// writeError is where every error of a handler ends.
func (s *Server) writeError(err error, c echo.Context) {
	if cause := context.Cause(c.Request().Context()); cause != nil && errors.Is(cause, errUnauthorized) {
		err = cause // a revoked request fails for that reason, whatever it met
	}
	status, body := answerTo(err)
	r := c.Request()
	log := s.o.Logger.Debug
	if status >= http.StatusInternalServerError && !errors.Is(err, context.Canceled) {
		log = s.o.Logger.Warn
	}
	log("Cannot answer request", "method", r.Method, "path", r.URL.Path, "status", status, "err", err)
	if c.Response().Committed {
		return // the connection ends short, which tells the client
	}
	switch status {
	case http.StatusUnauthorized:
		c.Response().Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		c.Response().Header().Set("Retry-After", "1")
	}
	// An error page must not keep the headers of the file it stands for.
	for _, name := range []string{"ETag", "Content-Disposition", "Content-Length", "Last-Modified"} {
		c.Response().Header().Del(name)
	}
	if r.ContentLength != 0 {
		// The rest of the body is read before the answer is sent, but not waited for.
		bodyDeadline(c, time.Now().Add(min(lingerTime, s.o.TransferTime/2)))
	}
	if r.Method == http.MethodHead {
		err = c.NoContent(status)
	} else {
		err = c.JSON(status, body)
	}
	if err != nil {
		s.o.Logger.Debug("Cannot send answer", "err", err)
	}
}

// notFound is the answer for what is not there or not the principal's.
func notFound(what, name string) error {
	return fmt.Errorf("cannot find %s %.140q: %w", what, name, fs.ErrNotExist)
}
