package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// An engine asks a Docker engine a few questions over its HTTP interface. Only
// sandbox/docker uses Docker's client, which doctor does not need.
type engine struct {
	client *http.Client
	base   string
}

const defaultEngine = "unix:///var/run/docker.sock"

func newEngine(host string) (*engine, error) {
	if host == "" {
		host = defaultEngine
	}
	u, err := url.Parse(host)
	if err != nil {
		return nil, fmt.Errorf("cannot use the engine's address %q: %w", host, err)
	}
	e := &engine{client: &http.Client{Timeout: 10 * time.Second}}
	switch u.Scheme {
	case "unix":
		e.base = "http://docker"
		e.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", u.Path)
		}}
	case "tcp", "http":
		e.base = "http://" + u.Host
		e.client.Transport = &http.Transport{}
	default:
		return nil, fmt.Errorf("cannot use the engine's address %q: it is neither unix:// nor tcp://", host)
	}
	return e, nil
}

// get asks for a path and decodes the answer. Docker's own message comes as
// the error where the answer is no success.
func (e *engine) get(ctx context.Context, path string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+path, nil)
	if err != nil {
		return err
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var told struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(body, &told) != nil || told.Message == "" {
			told.Message = resp.Status
		}
		return fmt.Errorf("the engine answers: %s", told.Message)
	}
	return json.Unmarshal(body, answer)
}

// engineInfo is what doctor reads of GET /info.
type engineInfo struct {
	ServerVersion   string
	Driver          string
	CgroupVersion   string
	SecurityOptions []string
	MemoryLimit     bool
	CPUCfsQuota     bool `json:"CpuCfsQuota"`
	PidsLimit       bool
	Runtimes        map[string]json.RawMessage
}

func askEngine(ctx context.Context, conf *upConfig) (engineInfo, error) {
	var info engineInfo
	e, err := newEngine(conf.Sandboxes.DockerHost)
	if err != nil {
		return info, err
	}
	defer e.client.CloseIdleConnections()
	return info, e.get(ctx, "/info", &info)
}

const (
	noMachines  = "no machines can run; files are served all the same with --sandboxes=off"
	startEngine = "start it: deploy/engine.sh does so on a host without systemd, systemctl start docker on one with it"
)

func checkEngine(ctx context.Context, conf *upConfig) finding {
	info, err := askEngine(ctx, conf)
	if err != nil {
		return fail(err.Error(), noMachines, startEngine)
	}
	found := fmt.Sprintf("Docker %s, %s, cgroup v%s", info.ServerVersion, info.Driver, info.CgroupVersion)
	if info.Driver == "vfs" {
		return warn(found, "each machine copies the whole image: starting one is slow and takes space",
			"keep the engine's data on ext4 or XFS, so that it uses overlay2")
	}
	return ok(found, "machines can run")
}

func checkSeccomp(ctx context.Context, conf *upConfig) finding {
	info, err := askEngine(ctx, conf)
	if err != nil {
		return fail("the engine does not answer", noMachines, startEngine)
	}
	has := func(o string) bool { return strings.HasPrefix(o, "name=seccomp") }
	if !slices.ContainsFunc(info.SecurityOptions, has) {
		return fail("the engine has no seccomp", "machines could use system calls that berth forbids them",
			"use an engine and a kernel with seccomp (CONFIG_SECCOMP_FILTER)")
	}
	return ok("the engine has seccomp", "berth's profile holds in every machine")
}

func checkLimits(ctx context.Context, conf *upConfig) finding {
	info, err := askEngine(ctx, conf)
	if err != nil {
		return fail("the engine does not answer", noMachines, startEngine)
	}
	var missing []string
	for _, l := range []struct {
		name string
		has  bool
	}{{"memory", info.MemoryLimit}, {"CPU", info.CPUCfsQuota}, {"processes", info.PidsLimit}} {
		if !l.has {
			missing = append(missing, l.name)
		}
	}
	if len(missing) > 0 {
		return fail("the engine cannot limit: "+strings.Join(missing, ", "), "one machine could take the whole host",
			"mount the cgroup controllers (deploy/engine.sh does) and start the engine again")
	}
	return ok("memory, CPU and processes", "a machine stays within its limits")
}

func checkRuntime(ctx context.Context, conf *upConfig) finding {
	info, err := askEngine(ctx, conf)
	if err != nil {
		return fail("the engine does not answer", noMachines, startEngine)
	}
	name := conf.Sandboxes.Runtime
	if _, there := info.Runtimes[name]; !there {
		return fail("the engine has no runtime "+name, noMachines, "install it and name it in the engine's daemon.json, or set sandboxes.runtime")
	}
	if name == "runsc" {
		return warn(name, "machines have a kernel of their own; file locks and inotify do not reach from one machine to another",
			"use runc if dev servers must see edits of other machines")
	}
	return ok(name, "it is there")
}

func checkImage(ctx context.Context, conf *upConfig) finding {
	e, err := newEngine(conf.Sandboxes.DockerHost)
	if err != nil {
		return fail(err.Error(), noMachines, startEngine)
	}
	defer e.client.CloseIdleConnections()
	var image struct {
		ID   string `json:"Id"`
		Size int64
	}
	if err := e.get(ctx, "/images/"+conf.Sandboxes.Image+"/json", &image); err != nil {
		return fail(fmt.Sprintf("%s: %v", conf.Sandboxes.Image, err), noMachines, "make it with: make image")
	}
	id := strings.TrimPrefix(image.ID, "sha256:")
	return ok(fmt.Sprintf("%s is %.12s, %.1f GiB", conf.Sandboxes.Image, id, gib(uint64(image.Size))), "machines start from it")
}
