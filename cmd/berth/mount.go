package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"berth/fusefs"
	"berth/fusefs/object"
	"berth/fusefs/object/embedded"
	"berth/fusefs/object/s3"
	"berth/mounts"
)

// What `berth mount` does where nothing else is said.
const (
	mountState      = defaultState + "-mount"
	mountBucket     = "berth"
	mountRevalidate = 5 * time.Second  // of a bucket that others may write to
	mountDrain      = 60 * time.Second // at the end, for uploads
)

// A mountCommand is what the command line says, and the parts in the order of
// their start.
type mountCommand struct {
	mountpoint string
	stateFlag  string
	storeURL   string
	bucket     string
	region     string
	exclusive  bool
	quota      fusefs.Quota
	history    time.Duration
	mediated   bool
	log        *slog.Logger

	state *stateDir
	store object.Store
	place storePlace
	fs    *fusefs.FS
}

func newMountCommand() *cobra.Command {
	m := &mountCommand{}
	cmd := &cobra.Command{
		Use:   "mount [flags] MOUNTPOINT",
		Short: "Mount a bucket and serve it in the foreground",
		Long: `Mount a bucket on a directory and serve it in the foreground, without gateway and
machines. Without --store the bucket is one of the embedded store, below the
state directory. Credentials are taken from AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN).

SIGTERM or SIGINT unmounts and uploads what is waiting, for at most a minute;
what is left then goes up after the next start. A second signal ends it at once.
berth flush, status, versions and restore talk to it with --state DIR.`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			m.mountpoint = args[0]
			m.log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop) // the next signal has its usual effect
			return m.run(ctx, func() {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is mounted on %s (passthrough %s)\n", m.place.Bucket, m.mountpoint, onOff(m.fs.Passthrough()))
			})
		},
	}
	cmd.Flags().StringVar(&m.stateFlag, "state", mountState, "keep the index and the cache in `DIR`")
	cmd.Flags().StringVar(&m.storeURL, "store", "", "mount the bucket of this S3 endpoint `URL`; default: the embedded store")
	cmd.Flags().StringVar(&m.bucket, "bucket", "", "the `NAME` of the bucket; needed with --store")
	cmd.Flags().StringVar(&m.region, "region", "", "the bucket's `REGION`, where the endpoint asks for it")
	cmd.Flags().DurationVar(&m.history, "history", 30*24*time.Hour, "keep earlier contents of files for this `TIME`")
	cmd.Flags().BoolVar(&m.exclusive, "exclusive", false, "nobody else writes to the bucket: believe what is cached for long")
	cmd.Flags().Int64Var(&m.quota.Bytes, "quota-bytes", 0, "refuse writes beyond `N` bytes of files, by apparent size; 0 is no limit")
	cmd.Flags().Int64Var(&m.quota.Files, "quota-files", 0, "refuse more than `N` files and directories; 0 is no limit")
	cmd.Flags().BoolVar(&m.mediated, "no-passthrough", false, "read and write through this process, as on kernels before 6.9")
	return cmd
}

// run serves until ctx ends or somebody else unmounts. Parts are stopped in the
// reverse order of their start.
func (m *mountCommand) run(ctx context.Context, ready func()) (err error) {
	if m.storeURL == "" != (m.bucket == "") {
		return &usageError{errors.New("--store and --bucket belong together")}
	}
	if m.quota.Bytes < 0 || m.quota.Files < 0 {
		return &usageError{errors.New("--quota-bytes and --quota-files cannot be below zero")}
	}
	if _, err := raiseOpenFiles(); err != nil {
		m.log.Warn("Cannot raise the limit of open files", "cause", err)
	}
	if m.mountpoint, err = filepath.Abs(m.mountpoint); err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	if m.state, err = openMountState(m.stateFlag); err != nil {
		return err
	}
	defer m.state.Close()
	storeCtx, stopStore := context.WithCancel(context.Background())
	var group errgroup.Group
	defer func() {
		stopStore()
		err = errors.Join(err, group.Wait())
	}()
	if m.store, err = m.openStore(storeCtx, &group); err != nil {
		return err
	}
	revalidate := mountRevalidate
	if m.exclusive || m.storeURL == "" {
		revalidate = 0
	}
	guard, err := startGuard() // berth restore writes through the mount
	if err != nil {
		return err
	}
	m.fs, err = fusefs.Open(ctx, fusefs.Options{StateDir: m.state.path, Store: m.store, Mountpoint: m.mountpoint,
		WholeBucket: true, Revalidate: revalidate, NoPassthrough: m.mediated, Logger: m.log,
		BucketQuota: m.quota, HistoryAge: m.history, Guard: guard})
	if err != nil {
		return err
	}
	defer func() {
		drain, cancel := context.WithTimeout(context.Background(), mountDrain)
		defer cancel()
		err = errors.Join(err, m.fs.Close(drain))
	}()
	return m.serve(ctx, ready)
}

// openMountState makes and locks a state directory that only this user needs to
// reach.
func openMountState(path string) (*stateDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("cannot use state directory: %w", err)
	}
	s := &stateDir{path: path}
	if err := os.MkdirAll(s.runDir(), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make state directory: %w", err)
	}
	return s, s.takeLock()
}

// openStore connects to the bucket, starting the embedded store if it is that.
func (m *mountCommand) openStore(ctx context.Context, group *errgroup.Group) (object.Store, error) {
	o := s3.Options{URL: m.storeURL, Bucket: m.bucket, Region: m.region, AccessKey: os.Getenv("AWS_ACCESS_KEY_ID"),
		SecretKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), Session: os.Getenv("AWS_SESSION_TOKEN")}
	if m.storeURL == "" {
		// Made anew each time: nobody else talks to this server.
		o = s3.Options{Bucket: mountBucket, AccessKey: randomHex(10), SecretKey: randomHex(20)}
		url, err := m.startEmbedded(ctx, group, o)
		if err != nil {
			return nil, err
		}
		o.URL = url
	} else if o.AccessKey == "" || o.SecretKey == "" {
		return nil, fmt.Errorf("cannot use store %s: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set: %w", m.storeURL, fs.ErrInvalid)
	}
	m.place = storePlace{URL: o.URL, Bucket: o.Bucket}
	return s3.New(o)
}

func (m *mountCommand) startEmbedded(ctx context.Context, group *errgroup.Group, o s3.Options) (string, error) {
	ready := make(chan string, 1)
	ended := make(chan error, 1)
	group.Go(func() error {
		err := embedded.Run(ctx, embedded.Options{Dir: m.state.storeDir(), Listen: "127.0.0.1:0", Bucket: o.Bucket,
			AccessKey: o.AccessKey, SecretKey: o.SecretKey, Logger: m.log, Ready: func(url string) { ready <- url }})
		ended <- err
		return nil
	})
	select {
	case url := <-ready:
		return url, nil
	case err := <-ended:
		return "", err
	}
}

// serve answers `berth status` and `berth flush` until the end.
func (m *mountCommand) serve(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group errgroup.Group
	group.Go(func() error {
		select {
		case <-m.fs.Done():
			cancel(errUnmounted)
		case <-ctx.Done():
		}
		return nil
	})
	token := randomHex(32)
	server := &mounts.Server{FileSystem: mounts.FUSE(m.fs), Token: token, Logger: m.log}
	err := server.Serve(ctx, m.state.mountdSocket(), func() error {
		err := writeControl(m.state.path, control{PID: os.Getpid(), Store: m.place,
			Mountd: socketConf{Socket: m.state.mountdSocket(), Token: token}})
		if err == nil {
			ready()
		}
		return err
	})
	unmounted := errors.Is(context.Cause(ctx), errUnmounted)
	cancel(nil)
	group.Wait() // it returns nothing
	if rerr := os.Remove(controlFile(m.state.path)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	if unmounted {
		// An umount by hand is a way to stop it.
		m.log.Info("The file system was unmounted, stopping")
	}
	return err
}
