package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"
)

// Every write is on disk before it is visible, and its name before it is
// answered: berth forgets that a file has to be uploaded when the store has
// answered, so the store must not lose it in a power cut.

// PutObject implements backend.Backend.
func (s *store) PutObject(ctx context.Context, in s3response.PutObjectInput) (s3response.PutObjectOutput, error) {
	if unfit(in.Key) {
		return s3response.PutObjectOutput{}, errUnfit
	}
	release := s.prepare(*in.Bucket, *in.Key)
	out, err := s.Posix.PutObjectWithPostFunc(ctx, in, (*os.File).Sync)
	if err == nil && isMarker(*in.Key) {
		err = s.completeMarker(in)
	}
	release(err != nil)
	if err == nil {
		err = syncName(*in.Bucket, *in.Key)
	}
	return out, err
}

// prepare makes way for a write of the key: no delete takes its directories from
// under it, and empty ones are no obstacle.
func (s *store) prepare(bucket, key string) (release func(failed bool)) {
	if path := filepath.Join(bucket, key); !isMarker(key) {
		if fi, err := os.Lstat(path); err == nil && fi.IsDir() {
			s.dirs.clear(path)
		}
	}
	return s.dirs.hold(bucket, key)
}

// completeMarker gives a marker its own time (that of its directory moves with
// every file in it) and removes the metadata that an earlier marker left.
func (s *store) completeMarker(in s3response.PutObjectInput) error {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	if err := s.attrs.StoreAttribute(nil, *in.Bucket, *in.Key, markerAttr, []byte(now)); err != nil {
		return fmt.Errorf("set time of marker: %w", err)
	}
	if len(in.Metadata) == 0 {
		err := s.attrs.DeleteAttribute(*in.Bucket, *in.Key, metadataAttr)
		if err != nil && !errors.Is(err, meta.ErrNoSuchKey) {
			return fmt.Errorf("remove metadata of marker: %w", err)
		}
	}
	return nil
}

// syncName writes the directory that holds the object's name to disk. Of a
// marker that is the directory itself. One that is gone again was emptied by a
// later delete.
func syncName(bucket, key string) error {
	dir := filepath.Join(bucket, key)
	if !isMarker(key) {
		dir = filepath.Dir(dir)
	}
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sync name of object: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync name of object: %w", err)
	}
	return nil
}

// CreateMultipartUpload implements backend.Backend.
func (s *store) CreateMultipartUpload(ctx context.Context, in s3response.CreateMultipartUploadInput) (s3response.InitiateMultipartUploadResult, error) {
	if unfit(in.Key) {
		return s3response.InitiateMultipartUploadResult{}, errUnfit
	}
	s.prepare(*in.Bucket, *in.Key)(false)
	if err := overlap(*in.Bucket, *in.Key); err != nil {
		return s3response.InitiateMultipartUploadResult{}, err
	}
	return s.Posix.CreateMultipartUpload(ctx, in)
}

// CompleteMultipartUpload implements backend.Backend.
func (s *store) CompleteMultipartUpload(ctx context.Context, in *s3.CompleteMultipartUploadInput) (s3response.CompleteMultipartUploadResult, string, error) {
	if unfit(in.Key) {
		return s3response.CompleteMultipartUploadResult{}, "", errUnfit
	}
	release := s.prepare(*in.Bucket, *in.Key)
	out, version, err := s.Posix.CompleteMultipartUploadWithCopy(ctx, in, appendSynced)
	release(err != nil)
	if err != nil {
		if blocked := overlap(*in.Bucket, *in.Key); blocked != nil {
			err = blocked
		}
		return out, version, err
	}
	return out, version, syncName(*in.Bucket, *in.Key)
}

// appendSynced appends a part. The part stays, so that it can be done again.
func appendSynced(from, to *os.File) (again bool, err error) {
	if _, err := io.Copy(to, from); err != nil {
		return true, err
	}
	return true, to.Sync()
}

// overlap returns the error of a key that is a directory, or is below a file.
func overlap(bucket, key string) error {
	if fi, err := os.Stat(filepath.Join(bucket, key)); err == nil && fi.IsDir() {
		return s3err.GetAPIError(s3err.ErrExistingObjectIsDirectory)
	}
	for parent := filepath.Dir(key); parent != "."; parent = filepath.Dir(parent) {
		fi, err := os.Stat(filepath.Join(bucket, parent))
		if err == nil && !fi.IsDir() {
			return s3err.GetAPIError(s3err.ErrObjectParentIsFile)
		}
		if err == nil {
			break
		}
	}
	return nil
}

// CopyObject implements backend.Backend. The backend's own copy is not written
// to disk before it is visible, and takes content and metadata of the source one
// after the other from its path.
func (s *store) CopyObject(ctx context.Context, in s3response.CopyObjectInput) (s3response.CopyObjectOutput, error) {
	if unfit(in.Key) {
		return s3response.CopyObjectOutput{}, errUnfit
	}
	bucket, key, version, err := backend.ParseCopySource(*in.CopySource)
	if err != nil {
		return s3response.CopyObjectOutput{}, err
	}
	if version != "" || bucket == *in.Bucket && key == *in.Key {
		return s.Posix.CopyObject(ctx, in)
	}
	src, put, err := s.openSource(bucket, key, in)
	if err != nil {
		return s3response.CopyObjectOutput{}, err
	}
	defer src.Close()
	out, err := s.PutObject(ctx, put)
	if err != nil {
		return s3response.CopyObjectOutput{}, err
	}
	result := s3response.CopyObjectOutput{CopyObjectResult: &s3response.CopyObjectResult{ETag: &out.ETag}}
	if fi, err := os.Stat(filepath.Join(*in.Bucket, *in.Key)); err == nil {
		modified := fi.ModTime()
		result.CopyObjectResult.LastModified = &modified
	}
	return result, nil
}

// openSource opens one generation of the source, checks the conditions on it and
// makes the request that puts it at its destination.
func (s *store) openSource(bucket, key string, in s3response.CopyObjectInput) (*os.File, s3response.PutObjectInput, error) {
	var put s3response.PutObjectInput
	src, err := os.Open(filepath.Join(bucket, key))
	if err != nil || unfit(&key) {
		return nil, put, s3err.GetAPIError(s3err.ErrNoSuchKey)
	}
	fi, err := src.Stat()
	switch {
	case err != nil:
		src.Close()
		return nil, put, fmt.Errorf("stat source of copy: %w", err)
	case fi.IsDir() != isMarker(key):
		src.Close()
		return nil, put, s3err.GetAPIError(s3err.ErrNoSuchKey)
	case fi.Size() > maxCopy:
		src.Close()
		return nil, put, s3err.GetCopySourceObjectTooLargeErr(maxCopy)
	}
	size := fi.Size()
	if fi.IsDir() {
		size = 0
	}
	put = s3response.PutObjectInput{
		Bucket: in.Bucket, Key: in.Key, Body: src, ContentLength: &size,
		ContentType: in.ContentType, ContentEncoding: in.ContentEncoding, ContentDisposition: in.ContentDisposition,
		ContentLanguage: in.ContentLanguage, CacheControl: in.CacheControl, Expires: in.Expires, Metadata: in.Metadata,
	}
	if err := s.loadSource(src, fi, in, &put); err != nil {
		src.Close()
		return nil, put, err
	}
	return src, put, nil
}

// loadSource checks the conditions on the source and, unless it is to be
// replaced, takes over what is known of it.
func (s *store) loadSource(src *os.File, fi fs.FileInfo, in s3response.CopyObjectInput, put *s3response.PutObjectInput) error {
	attr := func(name string) string {
		value, err := s.attrs.RetrieveAttribute(src, "", "", name)
		if err != nil {
			return ""
		}
		return string(value)
	}
	etag := attr(etagAttr)
	if fi.IsDir() && etag == "" {
		return s3err.GetAPIError(s3err.ErrNoSuchKey)
	}
	err := backend.EvaluatePreconditions(etag, fi.ModTime(), backend.PreConditions{
		IfMatch: in.CopySourceIfMatch, IfNoneMatch: in.CopySourceIfNoneMatch,
		IfModSince: in.CopySourceIfModifiedSince, IfUnmodeSince: in.CopySourceIfUnmodifiedSince,
	})
	if err != nil || in.MetadataDirective == types.MetadataDirectiveReplace {
		return err
	}
	for name, to := range map[string]**string{
		"content-type": &put.ContentType, "content-encoding": &put.ContentEncoding, "content-disposition": &put.ContentDisposition,
		"content-language": &put.ContentLanguage, "cache-control": &put.CacheControl, "expires": &put.Expires,
	} {
		*to = optional(attr(name))
	}
	put.Metadata = nil
	if raw := attr(metadataAttr); raw != "" {
		if err := json.NewDecoder(strings.NewReader(raw)).Decode(&put.Metadata); err != nil {
			return fmt.Errorf("read metadata of source: %w", err)
		}
	}
	return nil
}
