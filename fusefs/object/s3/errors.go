package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"

	"github.com/minio/minio-go/v7"

	"berth"
	"berth/fusefs/object"
)

// byCode maps the codes of S3 servers whose HTTP status says too little.
var byCode = map[string]error{
	"NoSuchKey":                 fs.ErrNotExist,
	"NoSuchVersion":             fs.ErrNotExist,
	"NoSuchBucket":              berth.ErrUnavailable, // never "no such object": files would be taken for deleted
	"NoSuchUpload":              berth.ErrUnavailable, // aborted by someone: the whole Put can be made again
	"PreconditionFailed":        object.ErrPrecondition,
	"OperationAborted":          object.ErrPrecondition,
	"InvalidRange":              fs.ErrInvalid,
	"KeyTooLongError":           fs.ErrInvalid,
	"KeyTooLong":                fs.ErrInvalid,
	"InvalidObjectName":         fs.ErrInvalid,
	"InvalidURI":                fs.ErrInvalid,
	"InvalidArgument":           fs.ErrInvalid,
	"InvalidRequest":            fs.ErrInvalid,
	"BadRequest":                fs.ErrInvalid,
	"400":                       fs.ErrInvalid,
	"MetadataTooLarge":          fs.ErrInvalid,
	"EntityTooLarge":            fs.ErrInvalid,
	"NotImplemented":            errors.ErrUnsupported,
	"MethodNotAllowed":          errors.ErrUnsupported,
	"SlowDown":                  berth.ErrUnavailable,
	"RequestTimeout":            berth.ErrUnavailable,
	"ExpiredToken":              berth.ErrUnavailable,
	"ExpiredTokenException":     berth.ErrUnavailable,
	"TokenRefreshRequired":      berth.ErrUnavailable,
	"RequestTimeTooSkewed":      berth.ErrUnavailable,
	"RequestExpired":            berth.ErrUnavailable,
	"BadDigest":                 berth.ErrUnavailable, // damaged on the way
	"IncompleteBody":            berth.ErrUnavailable,
	"XAmzContentSHA256Mismatch": berth.ErrUnavailable,

	// Stores that keep objects as files in directories.
	"ExistingObjectIsDirectory":     object.ErrOverlap,
	"ObjectParentIsFile":            object.ErrOverlap,
	"XMinioParentIsObject":          object.ErrOverlap,
	"XMinioObjectExistsAsDirectory": object.ErrOverlap,
	"DirectoryObjectContainsData":   fs.ErrInvalid,
	"XMinioInvalidObjectName":       fs.ErrInvalid,
}

// byStatus maps what has no code of its own.
func byStatus(status int) error {
	switch {
	case status == http.StatusNotFound:
		return fs.ErrNotExist
	case status == http.StatusPreconditionFailed, status == http.StatusConflict:
		return object.ErrPrecondition
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return fs.ErrPermission
	case status == http.StatusRequestedRangeNotSatisfiable:
		return fs.ErrInvalid
	case status == http.StatusNotImplemented:
		return errors.ErrUnsupported
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500:
		return berth.ErrUnavailable
	}
	return nil
}

// explain says in words what an operator can do about an error.
func explain(code string) string {
	switch code {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		return "the store's credentials have expired; give berth new ones: "
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken":
		return "the store does not know these credentials: "
	case "RequestTimeTooSkewed", "RequestExpired":
		return "this machine's clock differs from the store's: "
	case "NoSuchBucket":
		return "the bucket does not exist: "
	}
	return ""
}

// mapError turns an error of minio into one that keeps the contract of
// object.Store and names the object.
func mapError(ctx context.Context, verb, key string, err error) error {
	if ctx.Err() != nil {
		return ended(ctx, verb, key)
	}
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		if errors.Is(err, fs.ErrInvalid) || errors.Is(err, errBody) {
			return fmt.Errorf("cannot %s object %q: %w", verb, key, err)
		}
		return fmt.Errorf("cannot %s object %q: %w: %v", verb, key, berth.ErrUnavailable, err)
	}
	sentinel, ok := byCode[answer.Code]
	if !ok {
		sentinel = byStatus(answer.StatusCode)
	}
	text := fmt.Sprintf("%s%s (%s, status %d)", explain(answer.Code), answer.Message, answer.Code, answer.StatusCode)
	if sentinel == nil {
		return fmt.Errorf("cannot %s object %q: %s", verb, key, text)
	}
	return fmt.Errorf("cannot %s object %q: %w: %s", verb, key, sentinel, text)
}

// ended is the error of a call whose context is over: a deadline means that the
// store was too slow, anything else is the caller's own wish.
func ended(ctx context.Context, verb, key string) error {
	err := fmt.Errorf("cannot %s object %q: %w", verb, key, context.Cause(ctx))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, berth.ErrUnavailable) {
		return fmt.Errorf("%w (%w)", err, berth.ErrUnavailable)
	}
	return err
}

// reader is the body of a Get with errors of the contract.
type reader struct {
	body io.ReadCloser
	ctx  context.Context
	key  string
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	if err != nil && err != io.EOF {
		err = mapError(r.ctx, "read", r.key, err)
	}
	return n, err
}

func (r *reader) Close() error { return r.body.Close() }
