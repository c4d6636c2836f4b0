package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/api"
	"berth/mounts"
	"berth/preview"
	"berth/preview/web"
	"berth/sandbox"
)

func newGatewayCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "gateway",
		Short: "Serve the API and the web app (started by up)",
		Long: "Gateway is the process that the network reaches. It has neither the bucket's credentials nor the\n" +
			"Docker socket: it asks mountd and sandboxd. It is started by `berth up`, with its configuration on\n" +
			"file descriptor 3, as a user of its own.",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hideMemory()
			conf, err := readConfig[gatewayConfig]()
			if err != nil {
				return err
			}
			ctx, stop := childContext(cmd.Context())
			defer stop()
			return runGateway(ctx, conf, childLogger())
		},
	}
}

// How long the gateway takes to stop. A machine waits for its uploads for a
// while only: what is not in the bucket by then is journalled, and mountd, which
// stops later, goes on with it.
const (
	flushTime = 20 * time.Second
	stopTime  = time.Minute      // to put all machines to sleep
	closeTime = 15 * time.Second // to let go of what is left
)

// A gateway is the parts of the process, in the order in which they start.
type gateway struct {
	conf    gatewayConfig
	log     *slog.Logger
	mountd  *mounts.Client
	sandbox *sandbox.Client  // nil: sandboxes are off
	manager *sandbox.Manager // nil: sandboxes are off
	feed    *preview.Feed
	api     *api.Server
}

// runGateway serves until ctx ends. Then it ends streams, puts the machines to
// sleep and returns.
func runGateway(ctx context.Context, conf gatewayConfig, log *slog.Logger) error {
	g := &gateway{conf: conf, log: log}
	g.mountd = mounts.NewClient(conf.Mountd.Socket, conf.Mountd.Token)
	defer g.mountd.Close()
	if conf.Sandboxd != nil {
		g.sandbox = sandbox.NewClient(conf.Sandboxd.Socket, conf.Sandboxd.Token)
		defer g.sandbox.Close()
		g.initManager()
	}
	g.initFeed()
	defer g.feed.Close()
	if err := g.initAPI(); err != nil {
		return err
	}
	l, err := net.Listen("tcp", conf.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen (another program may use the port; --listen names another): %w", err)
	}
	defer l.Close()
	if g.manager == nil {
		return g.serve(ctx, l)
	}
	if err := g.manager.Start(ctx); err != nil {
		return err
	}
	err = g.serve(ctx, l)
	return errors.Join(err, g.stopMachines(context.WithoutCancel(ctx)))
}

// stopMachines puts all machines to sleep and ends the manager.
func (g *gateway) stopMachines(ctx context.Context) error {
	stopCtx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	err := g.manager.StopAll(stopCtx)
	if err != nil {
		err = fmt.Errorf("cannot put all machines to sleep: %w", err)
	}
	closeCtx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	return errors.Join(err, g.manager.Close(closeCtx))
}

func (g *gateway) initManager() {
	member, key := minutes(g.conf.IdleMinutesMember), minutes(g.conf.IdleMinutesKey)
	g.manager = sandbox.New(sandbox.Options{
		Mounts: g.mountd, Provider: g.sandbox, Records: g.mountd,
		SlotsDir: g.conf.SlotsDir, Pool: g.conf.Pool, MaxRunning: g.conf.MaxRunning,
		Idle: func(v berth.View) time.Duration {
			if v.User != "" {
				return member
			}
			return key
		},
		FlushTimeout: flushTime, Logger: g.log,
	})
}

func minutes(n float64) time.Duration { return time.Duration(n * float64(time.Minute)) }

func (g *gateway) initFeed() {
	o := preview.Options{Open: g.openChanges, Logger: g.log}
	if g.manager != nil {
		o.Calls = toolCalls{g.manager}
	}
	g.feed = preview.NewFeed(o)
}

func (g *gateway) initAPI() error {
	secret, err := g.conf.secretBytes()
	if err != nil {
		return err
	}
	o := api.Options{
		Records: g.mountd, Trees: g.mountd, Feed: g.feed, ViewDir: g.conf.ViewDir, Secret: secret,
		App: web.Files(), PreviewHost: g.conf.PreviewHost, Tools: sandbox.Tools[:], Logger: g.log,
	}
	if g.manager != nil {
		o.Machines = machines{g.manager}
	}
	g.api, err = api.New(o)
	return err
}

// serve says that the gateway is ready and answers requests until ctx ends.
func (g *gateway) serve(ctx context.Context, l net.Listener) error {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return fmt.Errorf("cannot tell the gateway's address: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	ready := gatewayReady{
		Ready: true, URL: "http://" + net.JoinHostPort(host, port), App: "http://" + net.JoinHostPort(g.conf.PreviewHost, port),
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.api.Serve(ctx, l) })
	if g.manager != nil {
		group.Go(func() error { return g.watchMachines(ctx) })
	}
	group.Go(func() error {
		// Only after an answer of its own is the gateway worth announcing.
		if err := probe(ctx, l.Addr().String()); err != nil {
			return err
		}
		return announceReady(ready)
	})
	return group.Wait()
}

// probe asks the gateway for its health.
func probe(ctx context.Context, addr string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v1/health", nil)
	if err != nil {
		return err
	}
	r.Host = "localhost"
	t := &http.Transport{}
	defer t.CloseIdleConnections()
	res, err := t.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("cannot reach the gateway itself: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("cannot use the gateway: its health is answered with status %d", res.StatusCode)
	}
	return nil
}
