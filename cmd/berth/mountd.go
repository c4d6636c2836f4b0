package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"berth"
	"berth/fusefs"
	"berth/fusefs/object"
	"berth/fusefs/object/s3"
	"berth/mounts"
)

// mountdConfig is what `berth mountd` reads from descriptor 3.
type mountdConfig struct {
	State string      `json:"state"`
	Store mountdStore `json:"store"`

	Socket      string `json:"socket"`
	SocketToken string `json:"socket_token"`

	GatewayUID int `json:"gateway_uid"`
	GatewayGID int `json:"gateway_gid"` // 0 = the number of the uid
	MachineUID int `json:"machine_uid"`
	MachineGID int `json:"machine_gid"`

	TemplateDir       string        `json:"template_dir"` // "" = machines have an empty project directory
	Quotas            fusefs.Quotas `json:"quotas"`
	HistoryDays       float64       `json:"history_days"`       // how long earlier contents are kept; 0 = 30
	RevalidateSeconds float64       `json:"revalidate_seconds"` // how long to believe what the store said, unless it is exclusive
}

// mountdStore names the bucket and how to use it.
type mountdStore struct {
	URL       string `json:"url"`
	Bucket    string `json:"bucket"`
	Region    string `json:"region"`
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
	Session   string `json:"session"`
	Exclusive bool   `json:"exclusive"` // nobody else writes to the bucket
}

// mountdReady is what it announces on descriptor 4.
type mountdReady struct {
	Ready       bool             `json:"ready"`
	Abilities   object.Abilities `json:"abilities"`
	Passthrough bool             `json:"passthrough"`
	IDMap       bool             `json:"idmap"` // false: the gateway must run as the machines' user
}

// How long mountd waits for the store.
const (
	mountdProbe = 60 * time.Second // at the start
	mountdDrain = 60 * time.Second // at the end, for uploads
)

func newMountdCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mountd",
		Short: "Serve the file system and the records (started by up)",
		Long: "Mountd is the only process of berth that speaks FUSE and S3. It mounts the bucket, puts views into\n" +
			"the slots of machines, keeps the records, and serves the gateway on a unix socket.\n" +
			"It is started by `berth up`, with its configuration on file descriptor 3.",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := readConfig[mountdConfig]()
			if err != nil {
				return err
			}
			if err := conf.validate(); err != nil {
				return err
			}
			ctx, stop := childContext(cmd.Context())
			defer stop()
			m := &mountd{conf: conf, log: childLogger(), parent: os.Getppid()}
			err = m.start(ctx)
			if err == nil {
				err = m.serve(ctx, func() error { return announceReady(m.ready()) })
			}
			return errors.Join(err, m.close())
		},
	}
}

func (c *mountdConfig) validate() error {
	for what, value := range map[string]string{
		"state": c.State, "store.url": c.Store.URL, "store.bucket": c.Store.Bucket, "socket": c.Socket, "socket_token": c.SocketToken,
	} {
		if value == "" {
			return fmt.Errorf("invalid configuration: %s is empty: %w", what, fs.ErrInvalid)
		}
	}
	if c.GatewayUID <= 0 || c.MachineUID <= 0 || c.MachineGID <= 0 || c.GatewayGID < 0 || c.RevalidateSeconds < 0 || c.HistoryDays < 0 {
		return fmt.Errorf("invalid configuration: users and times must be above zero: %w", fs.ErrInvalid)
	}
	if c.GatewayGID == 0 {
		c.GatewayGID = c.GatewayUID
	}
	return nil
}

// A mountd is the process's parts, in the order of their start.
type mountd struct {
	conf   mountdConfig
	log    *slog.Logger
	parent int // who starts it again when it ends

	abilities object.Abilities
	host      *mounts.Host
	s3        *s3.Store
	store     object.Store
	fs        *fusefs.FS
	records   *mounts.Records
}

// start starts the parts. What was started stays for close when it fails.
func (m *mountd) start(ctx context.Context) error {
	if _, err := raiseOpenFiles(); err != nil {
		m.log.Warn("Cannot raise the limit of open files", "cause", err)
	}
	for _, start := range []func(context.Context) error{
		m.prepareHost,
		m.openStore,
		m.openFS,
		m.startHost, // machines that run wait for their files; none of this waits for the store
		m.probe,
		m.openRecords,
	} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *mountd) prepareHost(context.Context) (err error) {
	m.host, err = mounts.Prepare(mounts.Options{
		State: m.conf.State, Template: m.conf.TemplateDir, Logger: m.log,
		GatewayUID: uint32(m.conf.GatewayUID), GatewayGID: uint32(m.conf.GatewayGID),
		MachineUID: uint32(m.conf.MachineUID), MachineGID: uint32(m.conf.MachineGID),
	})
	return err
}

func (m *mountd) startHost(ctx context.Context) error { return m.host.Start(ctx, mounts.FUSE(m.fs)) }

func (m *mountd) openStore(context.Context) (err error) {
	s := m.conf.Store
	m.s3, err = s3.New(s3.Options{
		URL: s.URL, Bucket: s.Bucket, Region: s.Region, AccessKey: s.AccessKey, SecretKey: s.SecretKey, Session: s.Session,
	})
	if err != nil {
		return err
	}
	m.store = object.WithDeadline(m.s3, object.NewDeadlines())
	return nil
}

func (m *mountd) probe(ctx context.Context) (err error) {
	m.abilities, err = m.findAbilities(ctx)
	return err
}

// findAbilities finds out what the store can do. While it is away what was found
// out last time holds, so that berth starts with what is cached.
func (m *mountd) findAbilities(ctx context.Context) (object.Abilities, error) {
	name := filepath.Join(m.conf.State, "abilities.json")
	limited, cancel := context.WithTimeout(ctx, mountdProbe)
	defer cancel()
	found, err := object.Probe(limited, m.store)
	if err == nil {
		data, err := json.Marshal(found)
		if err == nil {
			err = writeSecret(name, data)
		}
		return found, err
	}
	if !errors.Is(err, berth.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		return found, err
	}
	data, rerr := os.ReadFile(name)
	if rerr == nil {
		rerr = json.Unmarshal(data, &found)
	}
	if rerr != nil {
		return found, err // it was never reached
	}
	m.log.Warn("Cannot reach the store, starting with what is cached", "cause", err)
	return found, nil
}

func (m *mountd) openFS(ctx context.Context) (err error) {
	revalidate := time.Duration(m.conf.RevalidateSeconds * float64(time.Second))
	if m.conf.Store.Exclusive {
		revalidate = 0
	}
	guard, err := startGuard()
	if err != nil {
		return err
	}
	m.fs, err = fusefs.Open(ctx, fusefs.Options{
		Guard:    guard,
		StateDir: m.conf.State, Store: m.store, Mountpoint: m.host.FSDir(), Logger: m.log,
		Owner:      &fusefs.Owner{UID: uint32(m.conf.MachineUID), GID: uint32(m.conf.MachineGID)},
		Revalidate: revalidate, IDMapped: true, Quotas: m.conf.Quotas,
		HistoryAge: time.Duration(m.conf.HistoryDays * 24 * float64(time.Hour)),
	})
	return err
}

func (m *mountd) openRecords(ctx context.Context) (err error) {
	m.records, err = mounts.OpenRecords(ctx, mounts.RecordsOptions{
		Store: m.store, Abilities: m.abilities, Exclusive: m.conf.Store.Exclusive,
		Dir: filepath.Join(m.conf.State, "records"), Logger: m.log,
	})
	return err
}

func (m *mountd) ready() mountdReady {
	return mountdReady{Ready: true, Abilities: m.abilities, Passthrough: m.fs.Passthrough(), IDMap: m.host.IDMapped()}
}

// serve serves the gateway until ctx ends or somebody unmounts the file system,
// which is an error.
func (m *mountd) serve(ctx context.Context, ready func() error) error {
	peer := m.conf.GatewayUID
	if !m.host.IDMapped() {
		peer = m.conf.MachineUID
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-m.fs.Done():
			cancel(errUnmounted)
		case <-ctx.Done():
		}
	}()
	server := &mounts.Server{
		Host: m.host, FileSystem: mounts.FUSE(m.fs), Records: m.records,
		Token: m.conf.SocketToken, PeerUID: uint32(peer), Logger: m.log,
	}
	err := server.Serve(ctx, m.conf.Socket, ready)
	if errors.Is(context.Cause(ctx), errUnmounted) {
		err = errors.Join(err, errUnmounted)
	}
	return err
}

var errUnmounted = errors.New("cannot go on: the file system was unmounted by somebody else")

// close ends the parts in reverse order: every mount goes, so that nothing is
// written any more, then what was written goes up, as far as the time allows.
// The rest is journalled and goes up after the next start. When containers wait
// for that, it does not take its time.
func (m *mountd) close() error {
	var errs []error
	drain := mountdDrain
	if m.records != nil {
		errs = append(errs, m.records.Close())
	}
	if m.host != nil {
		if m.goesOn() {
			m.log.Info("Containers run: their slots stay for the next start")
			drain = 0
		} else {
			errs = append(errs, m.host.Unmount())
		}
		defer m.host.Close()
	}
	if m.fs != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		errs = append(errs, m.fs.Close(ctx))
	}
	if m.s3 != nil {
		m.s3.Close()
	}
	return errors.Join(errs...)
}

// goesOn says whether another mountd will follow at once, for containers that
// run: when berth stops, slots go before mountd does, or its parent has died.
func (m *mountd) goesOn() bool { return m.host.HasSlots() && os.Getppid() == m.parent }
