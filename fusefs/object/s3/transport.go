package s3

import (
	"context"
	"encoding/xml"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"
)

// newTransport is tuned for many small requests in parallel: as many idle
// connections to the one host as there are requests at a time, else most of
// them would be dialled anew. Compression stays off: bodies must arrive as they
// are stored.
func newTransport(o Options) *http.Transport {
	idle := o.MaxIdleConns
	if idle <= 0 {
		idle = 256
	}
	return &http.Transport{
		Proxy:                 o.Proxy,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		MaxIdleConns:          idle,
		MaxIdleConnsPerHost:   idle,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
		ReadBufferSize:        64 << 10,
		WriteBufferSize:       64 << 10,
	}
}

// noRedirect refuses redirects: a signed request is good for one place only.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// maxAnswer bounds an answer that is read into memory: a page of 1000 keys of
// 1024 bytes, each of them three characters long in URL encoding.
const maxAnswer = 16 << 20

// do makes a signed request without a body, for what minio's own calls do not do:
// LIST with a context, DELETE with a condition, GET and HEAD that leave metadata
// as it came. An answer outside 2xx is a minio.ErrorResponse. The caller closes
// the body of the answer.
func (s *Store) do(ctx context.Context, method, key string, query url.Values, header http.Header) (*http.Response, error) {
	req, err := s.sign(ctx, method, key, query, header)
	if err != nil {
		return nil, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	answer := minio.ErrorResponse{Key: key, BucketName: s.bucket}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if xml.Unmarshal(body, &answer) != nil {
		answer.Code = ""
	}
	answer.StatusCode = resp.StatusCode
	if answer.Message == "" {
		answer.Message = resp.Status
	}
	return nil, answer
}

// emptyDigest is the SHA-256 of no body.
const emptyDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// sign makes a request without a body, all of whose headers are signed.
func (s *Store) sign(ctx context.Context, method, key string, query url.Values, header http.Header) (*http.Request, error) {
	u := *s.base
	u.RawPath = u.Path + s3utils.EncodePath(key)
	u.Path += key
	u.RawQuery = s3utils.QueryEncode(query)
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("X-Amz-Content-Sha256", emptyDigest)
	return signer.SignV4(*req, s.creds.AccessKey, s.creds.SecretKey, s.creds.Session, s.creds.Region), nil
}

// bucketURL returns where the bucket's keys are: minio knows which servers take
// the bucket in the host's name and which in the path.
func bucketURL(core *minio.Core, bucket string) (*url.URL, error) {
	u, err := core.Presign(context.Background(), http.MethodGet, bucket, "", time.Minute, nil)
	if err != nil {
		return nil, err
	}
	u.RawQuery = ""
	return u, nil
}
