// Package s3 is an object.Store on a bucket of any S3 server. It is the only
// package that imports minio-go.
//
// Every request is signed with the digest of its body, so that a body damaged on
// the way is refused by the store. Nothing is retried here and nothing has a
// deadline of its own: object.WithDeadline adds one.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"berth/fusefs/object"
)

// Options say which bucket to use and how.
type Options struct {
	URL       string // scheme, host and port, such as "http://127.0.0.1:9000"
	Bucket    string
	Region    string // "" = us-east-1
	AccessKey string
	SecretKey string
	Session   string // of temporary credentials, "" otherwise

	PartSize     int64 // bodies above it go up in parts of it; 0 = 64 MiB, at least 5 MiB
	Parts        int   // how many parts of one body go up at once; 0 = 4
	MaxIdleConns int   // connections kept open; 0 = 256

	// Proxy finds the HTTP proxy of a request; nil = none.
	Proxy func(*http.Request) (*url.URL, error)
}

// Defaults of Options.
const (
	DefaultRegion   = "us-east-1"
	DefaultPartSize = 64 << 20
	minPartSize     = 5 << 20
	maxParts        = 10000
	maxSingleCopy   = 5 << 30
)

// Store is a bucket of an S3 server.
type Store struct {
	core      *minio.Core
	creds     Options
	base      *url.URL // of the bucket, with a slash at the end
	http      *http.Client
	transport *http.Transport
	bucket    string
	partSize  int64
	parts     int
}

var _ object.Store = (*Store)(nil)

// endpoint checks the options and returns where the server is.
func (o Options) endpoint() (*url.URL, error) {
	bad := func(why string) (*url.URL, error) {
		return nil, fmt.Errorf("cannot use store %q: %s: %w", o.URL, why, fs.ErrInvalid)
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return bad("the URL cannot be parsed")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return bad("the URL must be http://HOST or https://HOST")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return bad("the URL must hold scheme, host and port only")
	case o.Bucket == "":
		return bad("no bucket is named")
	case o.AccessKey == "" || o.SecretKey == "":
		return bad("there are no credentials for it")
	case o.PartSize != 0 && o.PartSize < minPartSize:
		return bad("parts must have at least 5 MiB")
	}
	return u, nil
}

// New returns the bucket as a Store. No request is made. Close it after use.
func New(o Options) (*Store, error) {
	u, err := o.endpoint()
	if err != nil {
		return nil, err
	}
	if o.Region == "" {
		o.Region = DefaultRegion
	}
	if o.PartSize == 0 {
		o.PartSize = DefaultPartSize
	}
	if o.Parts <= 0 {
		o.Parts = 4
	}
	transport := newTransport(o)
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds:      credentials.NewStaticV4(o.AccessKey, o.SecretKey, o.Session),
		Secure:     u.Scheme == "https",
		Region:     o.Region,
		Transport:  transport,
		MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot use store %q: %w", o.URL, err)
	}
	base, err := bucketURL(core, o.Bucket)
	if err != nil {
		return nil, fmt.Errorf("cannot use bucket %q of store %q: %w: %w", o.Bucket, o.URL, fs.ErrInvalid, err)
	}
	return &Store{
		core:      core,
		creds:     o,
		base:      base,
		http:      &http.Client{Transport: transport, CheckRedirect: noRedirect},
		transport: transport,
		bucket:    o.Bucket,
		partSize:  o.PartSize,
		parts:     o.Parts,
	}, nil
}

// Close closes the idle connections.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// Head implements object.Store.
func (s *Store) Head(ctx context.Context, key string) (object.Info, error) {
	if err := object.CheckKey(key); err != nil {
		return object.Info{}, err
	}
	resp, err := s.do(ctx, http.MethodHead, key, nil, nil)
	if err != nil {
		return object.Info{}, mapError(ctx, "head", key, err)
	}
	resp.Body.Close()
	return infoOf(key, resp.ContentLength, resp.Header)
}

// Get implements object.Store.
func (s *Store) Get(ctx context.Context, key string, o object.GetOptions) (io.ReadCloser, object.Info, error) {
	if err := object.CheckGet(key, o); err != nil {
		return nil, object.Info{}, err
	}
	header := http.Header{}
	switch {
	case o.Length > 0:
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", o.Offset, o.Offset+o.Length-1))
	case o.Offset > 0:
		header.Set("Range", fmt.Sprintf("bytes=%d-", o.Offset))
	}
	if o.IfMatch != "" {
		header.Set("If-Match", quote(o.IfMatch))
	}
	resp, err := s.do(ctx, http.MethodGet, key, nil, header)
	if err != nil {
		return nil, object.Info{}, mapError(ctx, "get", key, err)
	}
	info, err := infoOf(key, resp.ContentLength, resp.Header)
	if r := resp.Header.Get("Content-Range"); err == nil && r != "" {
		info.Size, err = sizeOfRange(key, r)
	} else if err == nil && (o.Offset > 0 || o.Length > 0) {
		err = fmt.Errorf("cannot get object %q: the store ignored the range: %w", key, errors.ErrUnsupported)
	}
	if err != nil {
		resp.Body.Close()
		return nil, object.Info{}, err
	}
	return &reader{body: resp.Body, ctx: ctx, key: key}, info, nil
}

// sizeOfRange returns the size of the whole object from a Content-Range header.
func sizeOfRange(key, r string) (int64, error) {
	_, size, ok := strings.Cut(r, "/")
	n, err := strconv.ParseInt(size, 10, 64)
	if !ok || err != nil || n < 0 {
		return 0, fmt.Errorf("cannot get object %q: the store answered with the range %q", key, r)
	}
	return n, nil
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, key, ifMatch string) error {
	if err := object.CheckKey(key); err != nil {
		return err
	}
	header := http.Header{}
	if ifMatch != "" {
		header.Set("If-Match", quote(ifMatch))
	}
	resp, err := s.do(ctx, http.MethodDelete, key, nil, header)
	if err == nil {
		resp.Body.Close()
		return nil
	}
	err = mapError(ctx, "delete", key, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case ifMatch != "" && errors.Is(err, object.ErrPrecondition):
		// Some stores answer so for a key that does not exist.
		if _, headErr := s.Head(ctx, key); errors.Is(headErr, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}

// infoOf makes an Info of the headers of an answer.
func infoOf(key string, size int64, h http.Header) (object.Info, error) {
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil || size < 0 {
		return object.Info{}, fmt.Errorf("cannot read the store's answer for object %q: size %d, last modified %q", key, size, h.Get("Last-Modified"))
	}
	return object.Info{
		Key:          key,
		Size:         size,
		ETag:         unquote(h.Get("ETag")),
		LastModified: wholeSeconds(modified),
		Metadata:     metadataOf(h),
		ContentType:  h.Get("Content-Type"),
		VersionID:    h.Get("X-Amz-Version-Id"),
	}, nil
}

// metaPrefix begins the header of one metadata entry.
const metaPrefix = "X-Amz-Meta-"

// metadataOf collects the metadata of an answer.
func metadataOf(h http.Header) map[string]string {
	m := make(map[string]string)
	for name, values := range h {
		if rest, ok := strings.CutPrefix(http.CanonicalHeaderKey(name), metaPrefix); ok {
			m[strings.ToLower(rest)] = object.DecodeMetadataValue(strings.Join(values, ","))
		}
	}
	return m
}

// putOptions turns metadata and content type into minio's options. The full
// header names keep minio from taking "cache-control" and the like for headers.
func putOptions(metadata map[string]string, contentType string) minio.PutObjectOptions {
	headers := make(map[string]string, len(metadata))
	for k, v := range metadata {
		headers[metaPrefix+k] = object.EncodeMetadataValue(v)
	}
	if contentType == "" {
		contentType = object.DefaultContentType
	}
	return minio.PutObjectOptions{
		UserMetadata:         headers,
		ContentType:          contentType,
		DisableContentSha256: true, // no streaming signature: the digest of the whole body is signed
	}
}

// putInfo is the Info of a Put or Copy of which the store said the ETag.
func putInfo(key string, size int64, etag, version string, metadata map[string]string, contentType string) object.Info {
	if contentType == "" {
		contentType = object.DefaultContentType
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	return object.Info{Key: key, Size: size, ETag: unquote(etag), Metadata: metadata, ContentType: contentType, VersionID: version}
}

func quote(etag string) string   { return `"` + etag + `"` }
func unquote(etag string) string { return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`) }

// wholeSeconds is the precision that all answers of all stores share.
func wholeSeconds(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}
