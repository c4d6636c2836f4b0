package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"berth"
	"berth/sandbox"
	"berth/sandbox/docker"
)

// sandboxdConfig is what `berth sandboxd` reads from its parent.
type sandboxdConfig struct {
	State       string `json:"state"`
	Socket      string `json:"socket"`
	SocketToken string `json:"socket_token"`
	GatewayUID  int    `json:"gateway_uid"`
	Image       string `json:"image"`
	Runtime     string `json:"runtime"`     // "" is the engine's default
	DockerHost  string `json:"docker_host"` // "" is the usual socket
	SlotsDir    string `json:"slots_dir"`
	AgentPath   string `json:"agent_path"` // a berth-agent to use in place of the image's; "" is the image's
}

// sandboxdReady is what it tells its parent.
type sandboxdReady struct {
	Ready       bool     `json:"ready"`
	ImageDigest string   `json:"image_digest"`
	Isolation   []string `json:"isolation"`
	Missing     []string `json:"missing"` // of the containment, not enforced on this host
}

func newSandboxdCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sandboxd",
		Short: "Make containers for the gateway (started by up)",
		Long: "Sandboxd is the only process of berth that speaks to the Docker engine. It makes, lists, measures\n" +
			"and removes containers on request of the gateway, and removes all that are left when it is stopped.\n" +
			"It is started by `berth up`, with its configuration on file descriptor 3.",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := readConfig[sandboxdConfig]()
			if err != nil {
				return err
			}
			ctx, stop := childContext(cmd.Context())
			defer stop()
			return runSandboxd(ctx, conf, childLogger())
		},
	}
}

func runSandboxd(ctx context.Context, conf sandboxdConfig, logger *slog.Logger) error {
	installation, err := installationID(filepath.Join(conf.State, "installation"))
	if err != nil {
		return err
	}
	etc := filepath.Join(conf.State, "machine-etc")
	if err := os.MkdirAll(etc, 0o755); err != nil {
		return fmt.Errorf("cannot make directory for the machines' resolver files: %w", err)
	}
	provider, err := docker.New(docker.Options{
		Host: conf.DockerHost, Image: conf.Image, Runtime: conf.Runtime, Installation: string(installation),
		SlotsDir: conf.SlotsDir, EtcDir: etc, AgentPath: conf.AgentPath,
	})
	if err != nil {
		return err
	}
	defer provider.Close()
	info, err := provider.Info(ctx)
	if err != nil {
		return err
	}
	server := &sandbox.Server{Provider: provider, Token: conf.SocketToken, GatewayUID: conf.GatewayUID, Logger: logger}
	err = server.Serve(ctx, conf.Socket, func() error {
		return announceReady(sandboxdReady{Ready: true, ImageDigest: info.Image, Isolation: info.Isolation, Missing: info.Missing})
	})
	if err != nil {
		return err
	}
	// A stop, as against a death, leaves no container: the gateway has put its
	// machines to sleep before, and what a gateway that died left goes now.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return destroyAll(clean, provider)
}

// destroyAll removes every container of the installation.
func destroyAll(ctx context.Context, provider sandbox.Provider) error {
	all, err := provider.List(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, c := range all {
		group.Go(func() { errs[i] = provider.Destroy(ctx, c.Slot) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// installationID returns the id kept in the file, which is made at first use:
// it tells this installation's containers from those of others on one engine.
func installationID(path string) (berth.ID, error) {
	data, err := os.ReadFile(path)
	if err == nil {
		id, bad := berth.ParseID("installation", strings.TrimSpace(string(data)))
		if bad != nil {
			return "", fmt.Errorf("cannot use %s: %w", path, bad)
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot read installation id: %w", err)
	}
	var buf [8]byte
	rand.Read(buf[:]) // never fails
	id := berth.ID(hex.EncodeToString(buf[:]))
	// By rename: a half-written id would orphan every container.
	temp := path + ".new"
	if err := errors.Join(os.WriteFile(temp, []byte(id+"\n"), 0o600), os.Rename(temp, path)); err != nil {
		return "", fmt.Errorf("cannot keep installation id: %w", err)
	}
	return id, nil
}
