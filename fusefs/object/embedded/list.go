package embedded

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"
)

// ListObjectsV2 implements backend.Backend. Beyond what the backend does it
// honours encoding-type=url (without it names with control characters make the
// answer unreadable), hides the backend's own directory only where it is, and
// shows when markers were put.
func (s *store) ListObjectsV2(ctx context.Context, in *s3.ListObjectsV2Input) (s3response.ListObjectsV2Result, error) {
	bucket, prefix, delimiter := deref(in.Bucket), deref(in.Prefix), deref(in.Delimiter)
	marker, err := base64.RawURLEncoding.DecodeString(deref(in.ContinuationToken))
	if err != nil {
		return s3response.ListObjectsV2Result{}, s3err.GetAPIError(s3err.ErrInvalidRequest)
	}
	if _, err := os.Stat(bucket); errors.Is(err, fs.ErrNotExist) {
		return s3response.ListObjectsV2Result{}, s3err.GetBucketErr(s3err.ErrNoSuchBucket, bucket)
	}
	toObject := s.Posix.FileToObj(bucket, in.FetchOwner != nil && *in.FetchOwner)
	found, err := backend.Walk(ctx, bucketFS{os.DirFS(bucket).(fs.ReadDirFS)}, prefix, delimiter, max(deref(in.StartAfter), string(marker)), *in.MaxKeys,
		func(path string, d fs.DirEntry) (s3response.Object, error) {
			obj, err := toObject(path, d)
			if err == nil && d.IsDir() {
				s.setMarkerTime(&obj.LastModified, bucket, path)
			}
			return obj, err
		}, nil)
	if err != nil {
		return s3response.ListObjectsV2Result{}, fmt.Errorf("walk %q: %w", bucket, err)
	}
	count := int32(len(found.Objects) + len(found.CommonPrefixes))
	out := s3response.ListObjectsV2Result{
		Name: &bucket, Prefix: &prefix, Delimiter: optional(delimiter), StartAfter: optional(deref(in.StartAfter)),
		ContinuationToken: optional(deref(in.ContinuationToken)), MaxKeys: in.MaxKeys, KeyCount: &count,
		IsTruncated: &found.Truncated, Contents: found.Objects, CommonPrefixes: found.CommonPrefixes,
	}
	if found.Truncated {
		out.NextContinuationToken = optional(base64.RawURLEncoding.EncodeToString([]byte(found.NextMarker)))
	}
	if req, ok := ctx.(*fasthttp.RequestCtx); ok && string(req.QueryArgs().Peek("encoding-type")) == "url" {
		encodeNames(&out)
	}
	return out, nil
}

// encodeNames writes all names of the answer in URL encoding.
func encodeNames(out *s3response.ListObjectsV2Result) {
	encode := func(name **string) {
		if *name != nil {
			// Slashes stay, as in S3's own answers.
			encoded := strings.ReplaceAll(url.QueryEscape(**name), "%2F", "/")
			*name = &encoded
		}
	}
	out.EncodingType = types.EncodingTypeUrl
	encode(&out.Prefix)
	encode(&out.Delimiter)
	encode(&out.StartAfter)
	for i := range out.Contents {
		encode(&out.Contents[i].Key)
	}
	for i := range out.CommonPrefixes {
		encode(&out.CommonPrefixes[i].Prefix)
	}
}

// bucketFS is a bucket's directory without the backend's own.
type bucketFS struct{ fs.ReadDirFS }

// ReadDir implements fs.ReadDirFS.
func (b bucketFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := b.ReadDirFS.ReadDir(name)
	if name == "." {
		for i, e := range entries {
			if e.Name() == posix.MetaTmpDir {
				return append(entries[:i:i], entries[i+1:]...), err
			}
		}
	}
	return entries, err
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// optional leaves empty elements out of the answer.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
