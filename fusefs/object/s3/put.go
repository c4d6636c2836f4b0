package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"berth/fusefs/object"
)

// errBody says that the body, not the store, is at fault.
var errBody = errors.New("the body cannot be read")

// Put implements object.Store.
func (s *Store) Put(ctx context.Context, key string, body io.ReaderAt, size int64, o object.PutOptions) (object.Info, error) {
	if err := object.CheckPut(key, size, o); err != nil {
		return object.Info{}, err
	}
	opts := putOptions(o.Metadata, o.ContentType)
	var up minio.UploadInfo
	var err error
	if size > s.partSize || o.InParts {
		up, err = s.putParts(ctx, key, body, size, opts, o)
	} else {
		up, err = s.putWhole(ctx, key, body, size, opts, o)
	}
	if err != nil {
		return object.Info{}, s.putError(ctx, key, o, err)
	}
	return putInfo(key, size, up.ETag, up.VersionID, o.Metadata, o.ContentType), nil
}

// putError maps the error of a Put. Stores answer 404 to an If-Match on a key
// that does not exist.
func (s *Store) putError(ctx context.Context, key string, o object.PutOptions, err error) error {
	if o.IfMatch != "" && minio.ToErrorResponse(err).Code == "NoSuchKey" {
		return fmt.Errorf("cannot put object %q: %w: it does not exist", key, object.ErrPrecondition)
	}
	return mapError(ctx, "put", key, err)
}

// condition adds the condition of a Put to the request that makes the object visible.
func condition(opts *minio.PutObjectOptions, o object.PutOptions) {
	if o.IfMatch != "" {
		opts.SetMatchETag(o.IfMatch)
	}
	if o.IfNoneMatch {
		opts.SetMatchETagExcept("*")
	}
}

func (s *Store) putWhole(ctx context.Context, key string, body io.ReaderAt, size int64, opts minio.PutObjectOptions, o object.PutOptions) (minio.UploadInfo, error) {
	condition(&opts, o)
	section := io.NewSectionReader(body, 0, size)
	sum, err := digest(section)
	if err != nil {
		return minio.UploadInfo{}, err
	}
	return s.core.PutObject(ctx, s.bucket, key, section, size, "", sum, opts)
}

// digest returns the SHA-256 of the section in hex.
func digest(section *io.SectionReader) (string, error) {
	hash := sha256.New()
	n, err := io.Copy(hash, io.NewSectionReader(section, 0, section.Size()))
	if err == nil && n < section.Size() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", errBody, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// partLayout returns the size of the parts and how many there are.
func partLayout(size, partSize int64) (int64, int) {
	for (size+partSize-1)/partSize > maxParts {
		partSize *= 2
	}
	return partSize, max(1, int((size+partSize-1)/partSize))
}

// putParts uploads the body in parts. On any failure the upload is aborted.
func (s *Store) putParts(ctx context.Context, key string, body io.ReaderAt, size int64, opts minio.PutObjectOptions, o object.PutOptions) (minio.UploadInfo, error) {
	partSize, n := partLayout(size, s.partSize)
	return s.inParts(ctx, key, n, opts, o, func(ctx context.Context, id string, i int) (minio.CompletePart, error) {
		offset := int64(i) * partSize
		return s.sendPart(ctx, key, id, i, io.NewSectionReader(body, offset, min(partSize, size-offset)))
	})
}

// sendPart uploads part i, counted from 0.
func (s *Store) sendPart(ctx context.Context, key, id string, i int, section *io.SectionReader) (minio.CompletePart, error) {
	sum, err := digest(section)
	if err != nil {
		return minio.CompletePart{}, err
	}
	part, err := s.core.PutObjectPart(ctx, s.bucket, key, id, i+1, section, section.Size(),
		minio.PutObjectPartOptions{Sha256Hex: sum, DisableContentSha256: true})
	return minio.CompletePart{PartNumber: i + 1, ETag: part.ETag}, err
}

// inParts makes an object of n parts, a few of them at once, each sent by the
// function given. Of the condition only the last request decides: nothing is
// visible before it.
func (s *Store) inParts(ctx context.Context, key string, n int, opts minio.PutObjectOptions, o object.PutOptions,
	send func(ctx context.Context, id string, i int) (minio.CompletePart, error),
) (minio.UploadInfo, error) {
	id, err := s.core.NewMultipartUpload(ctx, s.bucket, key, opts)
	if err != nil {
		return minio.UploadInfo{}, err
	}
	parts := make([]minio.CompletePart, n)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(s.parts)
	for i := range parts {
		group.Go(func() error {
			if groupCtx.Err() != nil {
				return context.Cause(groupCtx)
			}
			part, err := send(groupCtx, id, i)
			parts[i] = part
			return err
		})
	}
	err = group.Wait()
	if err == nil {
		last := minio.PutObjectOptions{}
		condition(&last, o)
		var up minio.UploadInfo
		if up, err = s.core.CompleteMultipartUpload(ctx, s.bucket, key, id, parts, last); err == nil {
			return up, nil
		}
	}
	s.abort(ctx, key, id)
	return minio.UploadInfo{}, err
}

// abort frees the parts of an upload that failed. It is tried once, also when
// the context is over; what is left then is removed by the store's own rule for
// unfinished uploads.
func (s *Store) abort(ctx context.Context, key, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	// The error that led here is the one that counts.
	_ = s.core.AbortMultipartUpload(ctx, s.bucket, key, id)
}

// Copy implements object.Store.
func (s *Store) Copy(ctx context.Context, dst, src string, o object.CopyOptions) (object.Info, error) {
	if err := object.CheckCopy(dst, src, o); err != nil {
		return object.Info{}, err
	}
	headers := map[string]string{}
	if o.SourceETag != "" {
		headers["x-amz-copy-source-if-match"] = quote(o.SourceETag)
	}
	if o.Metadata != nil {
		headers["x-amz-metadata-directive"] = "REPLACE"
		for k, v := range putOptions(o.Metadata, o.ContentType).Header() {
			headers[k] = v[0]
		}
	}
	got, err := s.core.CopyObject(ctx, s.bucket, src, s.bucket, dst, headers, minio.CopySrcOptions{}, minio.PutObjectOptions{})
	switch code := minio.ToErrorResponse(err).Code; {
	case err != nil && (code == "EntityTooLarge" || code == "InvalidRequest"):
		return s.copyLarge(ctx, dst, src, o, err)
	case err != nil:
		return object.Info{}, mapError(ctx, "copy", src, err)
	case got.ETag == "":
		// A copy that takes long begins its answer with 200 and may end it with an error.
		return object.Info{}, mapError(ctx, "copy", src, errors.New("the store broke off the copy"))
	}
	return object.Info{Key: dst, ETag: unquote(got.ETag)}, nil
}

// copyLarge copies in parts what is too large for one request. Cause is why the
// plain copy was refused; it is returned if size was not the reason.
func (s *Store) copyLarge(ctx context.Context, dst, src string, o object.CopyOptions, cause error) (object.Info, error) {
	from, err := s.Head(ctx, src)
	if err != nil {
		return object.Info{}, err
	}
	if from.Size <= maxSingleCopy {
		return object.Info{}, mapError(ctx, "copy", src, cause)
	}
	return s.copyParts(ctx, dst, from, o)
}

// copyParts copies the source in parts, pinned to its ETag.
func (s *Store) copyParts(ctx context.Context, dst string, from object.Info, o object.CopyOptions) (object.Info, error) {
	if o.SourceETag != "" && o.SourceETag != from.ETag {
		return object.Info{}, fmt.Errorf("cannot copy object %q: %w", from.Key, object.ErrPrecondition)
	}
	if o.Metadata == nil {
		o.Metadata, o.ContentType = from.Metadata, from.ContentType
	}
	partSize, n := partLayout(from.Size, s.partSize)
	pinned := map[string]string{"x-amz-copy-source-if-match": quote(from.ETag)}
	up, err := s.inParts(ctx, dst, n, putOptions(o.Metadata, o.ContentType), object.PutOptions{},
		func(ctx context.Context, id string, i int) (minio.CompletePart, error) {
			offset := int64(i) * partSize
			return s.core.CopyObjectPart(ctx, s.bucket, from.Key, s.bucket, dst, id, i+1, offset, min(partSize, from.Size-offset), pinned)
		})
	if err != nil {
		return object.Info{}, mapError(ctx, "copy", from.Key, err)
	}
	return object.Info{Key: dst, ETag: unquote(up.ETag)}, nil
}
