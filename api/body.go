package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
)

// maxBody is the largest JSON body of a request that is not a tool call.
const maxBody = 64 << 10

// readBody returns the request's body of at most limit bytes. A body that is
// announced larger is refused without being read.
func readBody(c echo.Context, limit int64) ([]byte, error) {
	r := c.Request()
	if r.ContentLength > limit {
		return nil, fmt.Errorf("the request body has %d bytes, at most %d are allowed: %w", r.ContentLength, limit, ErrTooLarge)
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Response(), r.Body, limit))
	var tooLarge *http.MaxBytesError
	if err != nil && !errors.As(err, &tooLarge) {
		return nil, fmt.Errorf("cannot read request body: %v: %w", err, fs.ErrInvalid)
	}
	bodyDeadline(c, time.Time{}) // it is here; handling it may take longer
	return body, err
}

// decodeBody reads the body as one JSON object of type T. An empty body is an
// empty object; unknown fields are refused.
func decodeBody[T any](c echo.Context) (T, error) {
	var v T
	body, err := readBody(c, maxBody)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return v, err
	}
	if bytes.TrimSpace(body)[0] != '{' {
		return v, fmt.Errorf("cannot parse request body: it is not a JSON object: %w", fs.ErrInvalid)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("cannot parse request body: %v: %w", err, fs.ErrInvalid)
	}
	if _, err := d.Token(); err != io.EOF {
		return v, fmt.Errorf("cannot parse request body: there is more than one JSON value: %w", fs.ErrInvalid)
	}
	return v, nil
}

// idParam parses the path parameter as an id; what names the kind of id.
func idParam(c echo.Context, name, what string) (berth.ID, error) {
	v, err := param(c, name)
	if err != nil {
		return "", err
	}
	return berth.ParseID(what, v)
}
