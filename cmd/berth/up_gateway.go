package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// gatewayCredential is the user the gateway runs as: no supplementary groups.
func gatewayCredential(uid, gid int) *syscall.Credential {
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{}}
}

// gatewayUID is the user the gateway runs as: one of its own where mountd could
// map the machines' files to it, else the machines' user.
func (in *installation) gatewayUID() int {
	if in.mountd.IDMap {
		return in.conf.GatewayUID
	}
	return machineUID
}

func (in *installation) startSandboxd(ctx context.Context) error {
	if !in.conf.Sandboxes.Enabled {
		in.say("machines: off")
		return nil
	}
	var ready sandboxdReady
	err := in.sup.Start(ctx, child{
		name: "sandboxd",
		config: func() (any, error) {
			s := in.conf.Sandboxes
			return sandboxdConfig{
				State: in.state.path, Socket: in.state.sandboxdSocket(), SocketToken: in.tokens.sandboxd,
				GatewayUID: in.gatewayUID(), Image: s.Image, Runtime: s.Runtime, DockerHost: s.DockerHost,
				SlotsDir: in.state.slotsDir(), AgentPath: agentBeside(os.Executable),
			}, nil
		},
		ready:       takeReady(&ready),
		startWithin: 30 * time.Second,
		stopWithin:  45 * time.Second, // it removes the containers
	})
	if err != nil {
		return fmt.Errorf("%w\n(berth doctor tells what is missing; --sandboxes=off serves files without machines)", err)
	}
	in.say("machines: image %s, runtime %s", in.conf.Sandboxes.Image, in.conf.Sandboxes.Runtime)
	if len(ready.Missing) > 0 {
		in.say("machines: this host does not enforce: %s", strings.Join(ready.Missing, ", "))
	}
	return nil
}

// agentBeside returns the berth-agent that was built with this binary, or ""
// for the one in the image.
func agentBeside(executable func() (string, error)) string {
	exe, err := executable()
	if err != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(exe), "berth-agent")
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

func (in *installation) gatewayConfig() (gatewayConfig, error) {
	conf := gatewayConfig{
		Listen:            in.conf.Listen,
		PreviewHost:       in.conf.PreviewHost,
		Secret:            in.secret,
		ViewDir:           in.state.viewDir(),
		SlotsDir:          in.state.slotsDir(),
		Mountd:            socketConf{in.state.mountdSocket(), in.tokens.mountd},
		Pool:              in.conf.Sandboxes.Pool,
		IdleMinutesMember: in.conf.IdleMinutesMember,
		IdleMinutesKey:    in.conf.IdleMinutesKey,
	}
	if in.conf.Sandboxes.Enabled {
		conf.Sandboxd = &socketConf{in.state.sandboxdSocket(), in.tokens.sandboxd}
		conf.MaxRunning = in.conf.Sandboxes.MaxRunning
	}
	if conf.Sandboxd != nil && conf.MaxRunning == 0 {
		total, err := memory("MemTotal")
		if err != nil {
			return conf, err
		}
		conf.MaxRunning = max(int(total/memoryPerMachine), 2)
	}
	if in.gateway.URL != "" { // started again: clients know its port
		u, err := url.Parse(in.gateway.URL)
		if err != nil {
			return conf, fmt.Errorf("cannot use the gateway's address: %w", err)
		}
		conf.Listen = u.Host
	}
	return conf, nil
}

// memoryPerMachine is how much of the host's memory is counted for a machine
// where max_running is not set: half its limit, which few reach at once.
const memoryPerMachine = 1 << 30

func (in *installation) startGateway(ctx context.Context) error {
	return in.sup.Start(ctx, child{
		name:        "gateway",
		config:      func() (any, error) { return in.gatewayConfig() },
		credential:  func() *syscall.Credential { return gatewayCredential(in.gatewayUID(), in.conf.GatewayUID) },
		ready:       takeReady(&in.gateway),
		startWithin: 60 * time.Second,
		stopWithin:  2 * time.Minute, // it puts the machines to sleep
	})
}
