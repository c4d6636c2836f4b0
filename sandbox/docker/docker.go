// Package docker makes machines' containers on a Docker engine. It is the only
// package that speaks to the engine.
//
// A container confines what is in it: an unprivileged user without capabilities
// or the means to gain any, a read-only root, bounds on memory, processors and
// processes, no network interface, no resolver, berth's seccomp profile, and no
// log. Two directories of its slot are mounted into it, both read-only: "home",
// below which views appear later by propagation, and "ctl", where the gateway
// listens. All of this is derived here: a caller names a slot and nothing else.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"

	"berth"
	"berth/sandbox"
)

// The bounds of one container.
const (
	MachineUser = "1000:1000"
	Memory      = 2 << 30 // no swap beyond it
	NanoCPUs    = 1_500_000_000
	MaxFileSize = 20 << 30 // of one file, holes included: its object holds them as zeros
	Processes   = 512
	TmpOptions  = "rw,exec,nosuid,nodev,mode=1777,size=1g,nr_inodes=200k"
	shmSize     = 64 << 20
	oomScore    = 200 // likelier than any process of the host; see package agent

	labelInstallation = "berth.installation"
	labelSlot         = "berth.slot"
	agentBinary       = "/usr/local/bin/berth-agent"
)

// Options say how containers are made.
type Options struct {
	Host         string // of the engine; "" is the usual socket
	Image        string // such as "berth-machine:core"
	Runtime      string // such as "runsc"; "" is the engine's default
	Installation string // an id: names this installation among others on the engine
	SlotsDir     string // shared mount in which mountd makes slots
	EtcDir       string // directory of the host for the machines' resolv.conf and hosts, which New writes
	AgentPath    string // a berth-agent of the host to use in place of the image's; "" is the image's
}

// A Provider makes containers on one engine. It implements sandbox.Provider.
type Provider struct {
	o       Options
	api     *client.Client
	profile string
}

// New returns a provider and writes the files of EtcDir. It does not ask the
// engine anything yet.
func New(o Options) (*Provider, error) {
	if _, err := berth.ParseID("installation", o.Installation); err != nil {
		return nil, err
	}
	opts := []client.Opt{client.WithAPIVersionNegotiation()}
	if o.Host != "" {
		opts = append(opts, client.WithHost(o.Host))
	}
	api, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, fmt.Errorf("cannot use docker host %q: %w", o.Host, err)
	}
	text, err := profile()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(o.EtcDir, "resolv.conf"), nil, 0o444),
		os.WriteFile(filepath.Join(o.EtcDir, "hosts"), []byte("127.0.0.1 localhost\n::1 localhost\n127.0.1.1 machine\n"), 0o444),
	); err != nil {
		return nil, fmt.Errorf("cannot write the machines' resolver files: %w", err)
	}
	return &Provider{o: o, api: api, profile: text}, nil
}

// Close gives up the connections to the engine.
func (p *Provider) Close() error { return p.api.Close() }

// name is the container's name: unique for a slot on the engine, so that the
// engine itself refuses a second one.
func (p *Provider) name(slot berth.ID) string {
	return "berth-" + p.o.Installation + "-" + string(slot)
}

// Create starts a container on a slot.
func (p *Provider) Create(ctx context.Context, slot berth.ID) (sandbox.Container, error) {
	none := sandbox.Container{}
	if _, err := berth.ParseID("slot", string(slot)); err != nil {
		return none, err
	}
	for _, dir := range []string{"home", "ctl"} {
		info, err := os.Lstat(filepath.Join(p.o.SlotsDir, string(slot), dir))
		if err != nil || !info.IsDir() {
			return none, fmt.Errorf("cannot make container: slot %s does not exist: %w", slot, fs.ErrNotExist)
		}
	}
	made, err := p.api.ContainerCreate(ctx, p.config(slot), p.hostConfig(slot), nil, nil, p.name(slot))
	if err != nil {
		return none, p.explain("make container of slot "+string(slot), err)
	}
	c, err := p.begin(ctx, made.ID, slot)
	if err != nil {
		// The caller's context may be what ended it.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		return none, errors.Join(err, p.Destroy(clean, slot))
	}
	return c, nil
}

// begin starts a container that was made.
func (p *Provider) begin(ctx context.Context, id string, slot berth.ID) (sandbox.Container, error) {
	if err := p.api.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		return sandbox.Container{}, p.explain("start container of slot "+string(slot), err)
	}
	info, err := p.api.ContainerInspect(ctx, id)
	if err != nil {
		return sandbox.Container{}, p.explain("inspect container of slot "+string(slot), err)
	}
	return describe(slot, info), nil
}

func (p *Provider) config(slot berth.ID) *container.Config {
	return &container.Config{
		Image: p.o.Image, User: MachineUser, Hostname: "machine", WorkingDir: "/",
		Entrypoint: []string{agentBinary}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
		Labels:          map[string]string{labelInstallation: p.o.Installation, labelSlot: string(slot)},
		NetworkDisabled: true,
	}
}

func (p *Provider) hostConfig(slot berth.ID) *container.HostConfig {
	dir := filepath.Join(p.o.SlotsDir, string(slot))
	pids, noInit := int64(Processes), false
	h := &container.HostConfig{
		NetworkMode: "none", IpcMode: "private", Runtime: p.o.Runtime, Init: &noInit,
		ReadonlyRootfs: true, CapDrop: []string{"ALL"},
		SecurityOpt: []string{"no-new-privileges", "seccomp=" + p.profile},
		LogConfig:   container.LogConfig{Type: "none"},
		OomScoreAdj: oomScore, ShmSize: shmSize,
		Tmpfs: map[string]string{"/tmp": TmpOptions},
		Resources: container.Resources{
			Memory: Memory, MemorySwap: Memory, NanoCPUs: NanoCPUs, PidsLimit: &pids,
			Ulimits: []*container.Ulimit{
				{Name: "core", Soft: 0, Hard: 0},
				{Name: "fsize", Soft: MaxFileSize, Hard: MaxFileSize},
			},
		},
		Mounts: []mount.Mount{
			bind(filepath.Join(dir, "home"), "/home", mount.PropagationRSlave),
			bind(filepath.Join(dir, "ctl"), "/run/berth", mount.PropagationRPrivate),
			bind(filepath.Join(p.o.EtcDir, "resolv.conf"), "/etc/resolv.conf", mount.PropagationRPrivate),
			bind(filepath.Join(p.o.EtcDir, "hosts"), "/etc/hosts", mount.PropagationRPrivate),
		},
	}
	if p.o.AgentPath != "" {
		h.Mounts = append(h.Mounts, bind(p.o.AgentPath, agentBinary, mount.PropagationRPrivate))
	}
	return h
}

func bind(source, target string, how mount.Propagation) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: source, Target: target, ReadOnly: true,
		BindOptions: &mount.BindOptions{Propagation: how},
	}
}

// describe makes a Container of what the engine says.
func describe(slot berth.ID, info container.InspectResponse) sandbox.Container {
	c := sandbox.Container{Slot: slot, ID: info.ID, Image: info.Image}
	switch s := info.State; {
	case s == nil:
	case s.Running:
		c.Running, c.InitPID = true, s.Pid
	case s.OOMKilled:
		c.Exit = "out of memory"
	case s.Error != "":
		c.Exit = s.Error
	default:
		c.Exit = fmt.Sprintf("exit code %d", s.ExitCode)
	}
	return c
}

// List returns the installation's containers.
func (p *Provider) List(ctx context.Context) ([]sandbox.Container, error) {
	all, err := p.api.ContainerList(ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", labelInstallation+"="+p.o.Installation)),
	})
	if err != nil {
		return nil, p.explain("list containers", err)
	}
	out := make([]sandbox.Container, 0, len(all))
	for _, c := range all {
		slot, err := berth.ParseID("slot", c.Labels[labelSlot])
		if err != nil {
			continue // not one of ours, whatever its other label says
		}
		info, err := p.api.ContainerInspect(ctx, c.ID)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, p.explain("inspect container of slot "+string(slot), err)
		}
		out = append(out, describe(slot, info))
	}
	return out, nil
}

// Destroy ends and removes the container of a slot.
func (p *Provider) Destroy(ctx context.Context, slot berth.ID) error {
	if _, err := berth.ParseID("slot", string(slot)); err != nil {
		return err
	}
	for pause := 20 * time.Millisecond; ; pause *= 2 {
		err := p.api.ContainerRemove(ctx, p.name(slot), container.RemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err) || pause > 5*time.Second:
			return p.explain("remove container of slot "+string(slot), err)
		}
		// Somebody removes it at this moment: it is gone only when that is done.
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// explain says what could not be done, in errors that callers know.
func (p *Provider) explain(what string, err error) error {
	switch {
	case errdefs.IsNotFound(err) && p.missingImage():
		return fmt.Errorf("cannot %s: there is no image %q: run make image: %w", what, p.o.Image, berth.ErrUnavailable)
	case errdefs.IsNotFound(err):
		return fmt.Errorf("cannot %s: %v: %w", what, err, fs.ErrNotExist)
	case errdefs.IsConflict(err):
		return fmt.Errorf("cannot %s: %v: %w", what, err, fs.ErrExist)
	case client.IsErrConnectionFailed(err), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("cannot %s: the docker engine is away: %v: %w", what, err, berth.ErrUnavailable)
	}
	return fmt.Errorf("cannot %s: %w", what, err)
}

// missingImage says whether the engine lacks the machines' image.
func (p *Provider) missingImage() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := p.api.ImageInspect(ctx, p.o.Image)
	return errdefs.IsNotFound(err)
}
