package embedded

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3err"
	"golang.org/x/sys/unix"
)

// maxCopy is the largest object that one request copies, as in S3.
const maxCopy = 5 << 30

// Attributes of the posix backend and one of ours.
const (
	etagAttr     = "etag"
	metadataAttr = "metadata"
	markerAttr   = "berth-marker-time" // when a directory's marker was put
)

// store is the posix backend with what the contract of object.Store asks beyond
// it: conditional deletes that exclude writes, markers with a time and metadata
// of their own, listings of any name, and no access to the backend's own files.
type store struct {
	*posix.Posix
	attrs meta.MetadataStorer
	dirs  *dirs
}

var _ backend.Backend = (*store)(nil)

// errUnfit refuses keys that are no path of their own in the bucket's directory:
// they would be another object, the backend's own files, or outside.
var errUnfit = s3err.APIError{
	Code: "InvalidObjectName", Description: "the key has an empty, '.' or '..' part, or is reserved", HTTPStatusCode: http.StatusBadRequest,
}

func unfit(key *string) bool {
	if key == nil {
		return true
	}
	path := strings.TrimSuffix(*key, "/")
	return !fs.ValidPath(path) || path == "." || path == posix.MetaTmpDir || strings.HasPrefix(path, posix.MetaTmpDir+"/")
}

func isMarker(key string) bool { return strings.HasSuffix(key, "/") }

// setMarkerTime replaces a directory's time with that of its marker.
func (s *store) setMarkerTime(modified **time.Time, bucket, key string) {
	raw, err := s.attrs.RetrieveAttribute(nil, bucket, key, markerAttr)
	if err != nil {
		return // put by another tool
	}
	if t, err := time.Parse(time.RFC3339Nano, string(raw)); err == nil {
		*modified = &t
	}
}

// HeadObject implements backend.Backend.
func (s *store) HeadObject(ctx context.Context, in *s3.HeadObjectInput) (*s3.HeadObjectOutput, error) {
	if unfit(in.Key) {
		return nil, s3err.GetAPIError(s3err.ErrNoSuchKey)
	}
	return consistent(ctx, *in.Bucket, *in.Key, func() (*s3.HeadObjectOutput, error) {
		out, err := s.Posix.HeadObject(ctx, in)
		if err == nil && isMarker(*in.Key) {
			s.setMarkerTime(&out.LastModified, *in.Bucket, *in.Key)
		}
		return out, err
	}, func(*s3.HeadObjectOutput) {})
}

// GetObject implements backend.Backend.
func (s *store) GetObject(ctx context.Context, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	if unfit(in.Key) {
		return nil, s3err.GetAPIError(s3err.ErrNoSuchKey)
	}
	return consistent(ctx, *in.Bucket, *in.Key, func() (*s3.GetObjectOutput, error) {
		out, err := s.Posix.GetObject(ctx, in)
		if err == nil && isMarker(*in.Key) {
			s.setMarkerTime(&out.LastModified, *in.Bucket, *in.Key)
		}
		return out, err
	}, func(out *s3.GetObjectOutput) {
		if out.Body != nil {
			out.Body.Close()
		}
	})
}

// consistent repeats look until what it found belongs to one generation of the
// object. The backend takes ETag, content and metadata of an object one after
// the other from its path, where a new generation can appear in between.
func consistent[T any](ctx context.Context, bucket, key string, look func() (T, error), discard func(T)) (T, error) {
	path := filepath.Join(bucket, key)
	for {
		before := generation(path)
		out, err := look()
		if before == generation(path) || ctx.Err() != nil {
			return out, err
		}
		if err == nil {
			discard(out)
		}
	}
}

// A file's generation changes with its content and attributes.
type fileGeneration struct {
	ino  uint64
	time unix.Timespec
}

func generation(path string) fileGeneration {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return fileGeneration{}
	}
	return fileGeneration{st.Ino, st.Ctim}
}

// lockKey takes the lock that the backend's writers hold while they put a new
// generation in place: a file named for the digests of bucket and key.
func lockKey(bucket, key string) (unlock func(), err error) {
	bucketSum, keySum := sha256.Sum256([]byte(bucket)), sha256.Sum256([]byte(key))
	dir := filepath.Join(".vgwlocks", fmt.Sprintf("%x", bucketSum))
	open := func() (*os.File, error) {
		return os.OpenFile(filepath.Join(dir, fmt.Sprintf("%02x", keySum[0])), os.O_RDWR|os.O_CREATE, 0o600)
	}
	f, err := open()
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			f, err = open()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot lock object %q: %w", key, err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != unix.EINTR {
			f.Close()
			return nil, fmt.Errorf("cannot lock object %q: %w", key, err)
		}
	}
}
