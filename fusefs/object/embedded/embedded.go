// Package embedded runs a small S3 server on a directory, for installations that
// bring no bucket of their own. It is the only package that imports versitygw.
//
// Objects are plain files below Dir/Bucket under their keys, so that they can be
// read and backed up with any tool. ETag, content type and metadata are extended
// attributes (user.*) of those files: the file system must keep them, as ext4,
// XFS, btrfs and tmpfs (Linux 6.6) do, and a backup must copy them. An object
// appears by a rename of a complete file, whose data was written to disk before:
// neither the death of the process nor a power cut leaves half of one, and one
// whose PUT was answered survives both. A delete may be undone by a power cut
// within seconds of it.
//
// The bucket keeps no versions. A key cannot exist beside another one below it
// ("a" and "a/b"): the second is refused with object.ErrOverlap. A part of a key
// between slashes has at most 255 bytes.
//
// The server takes the directory as the working directory of the process and
// can run once at a time in a process.
package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
)

// Region is the region that clients must name.
const Region = "us-east-1"

// Options say what to serve where.
type Options struct {
	Dir       string // made if it does not exist, with mode 0700
	Listen    string // a loopback address and port; port 0, or one that is taken, becomes a free one
	AccessKey string
	SecretKey string
	Bucket    string // made if it does not exist
	Logger    *slog.Logger

	// Ready is called once, when the server answers at the URL. Run ends no
	// sooner than it returns.
	Ready func(url string)
}

const (
	maxConnections = 4096
	maxRequests    = 2048
	maxParts       = 10000
)

// Run serves the bucket until the context ends, which is no error. What is
// being answered then is answered, for at most 10 seconds.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	be, err := openBackend(o)
	if err != nil {
		return err
	}
	defer be.Shutdown()
	addr, err := freeAddress(o.Listen)
	if err != nil {
		return err
	}
	iam := auth.NewIAMServiceSingle(auth.Account{Access: o.AccessKey, Secret: o.SecretKey, Role: auth.RoleAdmin})
	server, err := s3api.New(be, middlewares.RootUserConfig{Access: o.AccessKey, Secret: o.SecretKey}, Region, iam,
		&errorLog{o.Logger}, nil, nil, nil,
		s3api.WithQuiet(), s3api.WithKeepAlive(), s3api.WithDisableACL(),
		s3api.WithConcurrencyLimiter(maxConnections, maxRequests), s3api.WithMpMaxParts(maxParts),
		s3api.WithHealth(healthPath))
	if err != nil {
		return fmt.Errorf("cannot start store in %q: %w", o.Dir, err)
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeMultiPort([]string{addr}) }()
	// Stopping a server that does not serve yet has no effect on it: first it
	// must answer, also if the context is over by then.
	if err := waitAnswer("http://"+addr+healthPath, served); err != nil {
		return fmt.Errorf("cannot serve store at %s: %w", addr, err)
	}
	o.Ready("http://" + addr)
	select {
	case err := <-served:
		return fmt.Errorf("cannot serve store at %s: %w", addr, err)
	case <-ctx.Done():
	}
	switch err := server.ShutDown(); {
	case errors.Is(err, context.DeadlineExceeded):
		o.Logger.Warn("Stopped the store with requests unanswered")
		return nil
	case err != nil:
		return fmt.Errorf("cannot stop store at %s: %w", addr, err)
	}
	<-served
	return nil
}

// healthPath answers anyone; it is no name of a bucket.
const healthPath = "/.health"

// waitAnswer returns when the server answers, or cannot serve.
func waitAnswer(url string, served <-chan error) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: startLimit}
	retry := time.NewTicker(2 * time.Millisecond)
	defer retry.Stop()
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	for {
		if resp, err := client.Get(url); err == nil {
			return resp.Body.Close()
		}
		select {
		case err := <-served:
			return err
		case <-limit.C:
			return fmt.Errorf("no answer within %s", startLimit)
		case <-retry.C:
		}
	}
}

// startLimit is how long the server may take to answer for the first time.
const startLimit = 10 * time.Second

func (o Options) check() error {
	bad := func(why string) error {
		return fmt.Errorf("cannot start store: %s: %w", why, fs.ErrInvalid)
	}
	switch {
	case o.Dir == "":
		return bad("no directory is named")
	case o.Bucket == "" || o.Bucket != filepath.Base(o.Bucket) || o.Bucket[0] == '.':
		return bad(fmt.Sprintf("%q is no name of a bucket", o.Bucket))
	case o.AccessKey == "" || o.SecretKey == "":
		return bad("it has no credentials")
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return bad(fmt.Sprintf("listen address %q: %v", o.Listen, err))
	}
	// The server speaks plain HTTP and its one account may do everything.
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return bad(fmt.Sprintf("listen address %q is not a loopback address such as 127.0.0.1:0", o.Listen))
	}
	return nil
}

// freeAddress returns the address with a port that was free a moment ago: the
// one given if it can be had, else any.
func freeAddress(listen string) (string, error) {
	ln, err := net.Listen("tcp", listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(listen)
		ln, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return "", fmt.Errorf("cannot listen at %q: %w", listen, err)
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// makeBucket makes the bucket's directory. It can be repeated: a process that
// died between the steps leaves nothing that this does not complete.
func makeBucket(attrs meta.MetadataStorer, o Options) error {
	if err := os.MkdirAll(filepath.Join(o.Dir, o.Bucket), 0o700); err != nil {
		return fmt.Errorf("cannot make bucket %q: %w", o.Bucket, err)
	}
	acl, err := json.Marshal(auth.ACL{Owner: o.AccessKey})
	if err != nil {
		return fmt.Errorf("cannot make bucket %q: %w", o.Bucket, err)
	}
	dir := filepath.Join(o.Dir, o.Bucket)
	for name, value := range map[string]string{"acl": string(acl), "ownership": "BucketOwnerEnforced"} {
		if err := attrs.StoreAttribute(nil, dir, "", name, []byte(value)); err != nil {
			if errors.Is(err, syscall.ENOTSUP) {
				return fmt.Errorf("cannot keep objects in %q: its file system has no extended attributes (user.*); "+
					"use a directory on ext4, XFS or btrfs: %w", o.Dir, err)
			}
			return fmt.Errorf("cannot make bucket %q: %w", o.Bucket, err)
		}
	}
	return nil
}
