package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"
)

// DeleteObject implements backend.Backend. The backend's own checks the
// condition and removes the file without excluding writers, so that a write in
// between would be removed; and it removes directories that a write is about to
// use, which fails that write.
func (s *store) DeleteObject(ctx context.Context, in *s3.DeleteObjectInput) (*s3.DeleteObjectOutput, error) {
	if deref(in.VersionId) != "" {
		return s.Posix.DeleteObject(ctx, in) // which knows what to say
	}
	if unfit(in.Key) {
		return &s3.DeleteObjectOutput{}, nil
	}
	removed, err := s.remove(in)
	if err != nil {
		return nil, err
	}
	if removed {
		s.dirs.prune(*in.Bucket, *in.Key)
	}
	return &s3.DeleteObjectOutput{}, nil
}

// remove removes the object's file, or a marker, under the lock that writers of
// the key hold. What is no object is not removed and no error.
func (s *store) remove(in *s3.DeleteObjectInput) (bool, error) {
	unlock, err := lockKey(*in.Bucket, *in.Key)
	if err != nil {
		return false, err
	}
	defer unlock()
	path := filepath.Join(*in.Bucket, *in.Key)
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at object: %w", err)
	case fi.IsDir() != isMarker(*in.Key):
		return false, nil
	}
	etag, err := s.attrs.RetrieveAttribute(nil, path, "", etagAttr)
	if fi.IsDir() && errors.Is(err, meta.ErrNoSuchKey) {
		return false, nil // a directory whose marker was never put
	}
	err = backend.EvaluateObjectDeletePreconditions(string(etag), fi.ModTime(), fi.Size(), backend.ObjectDeletePreconditions{
		IfMatch: in.IfMatch, IfMatchLastModTime: in.IfMatchLastModifiedTime, IfMatchSize: in.IfMatchSize,
	})
	if err != nil {
		return false, err
	}
	if !fi.IsDir() {
		err = os.Remove(path)
	} else if err = s.attrs.DeleteAttribute(path, "", etagAttr); err == nil {
		s.dirs.remove(path) // as long as it is empty
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("remove object: %w", err)
	}
	return true, nil
}

// DeleteObjects implements backend.Backend.
func (s *store) DeleteObjects(ctx context.Context, in *s3.DeleteObjectsInput) (s3response.DeleteResult, error) {
	var result s3response.DeleteResult
	for _, obj := range in.Delete.Objects {
		_, err := s.DeleteObject(ctx, &s3.DeleteObjectInput{
			Bucket: in.Bucket, Key: obj.Key, VersionId: obj.VersionId,
			IfMatch: obj.ETag, IfMatchLastModifiedTime: obj.LastModifiedTime, IfMatchSize: obj.Size,
		})
		if err == nil {
			result.Deleted = append(result.Deleted, types.DeletedObject{Key: obj.Key, VersionId: obj.VersionId})
			continue
		}
		result.Error = append(result.Error, s3err.ObjectDeleteError(obj.Key, obj.VersionId, err))
	}
	return result, nil
}
