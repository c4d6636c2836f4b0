package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/docker/docker/api/types/container"

	"berth"
	"berth/sandbox"
)

// maxStats bounds the engine's answer to a question for statistics.
const maxStats = 1 << 20

// Info says what the engine enforces of what containers ask for.
func (p *Provider) Info(ctx context.Context) (sandbox.Info, error) {
	engine, err := p.api.Info(ctx)
	if err != nil {
		return sandbox.Info{}, p.explain("ask docker engine", err)
	}
	image, err := p.api.ImageInspect(ctx, p.o.Image)
	if err != nil {
		return sandbox.Info{}, p.explain("inspect image "+p.o.Image, err)
	}
	runtime := p.o.Runtime
	if runtime == "" {
		runtime = engine.DefaultRuntime
	}
	if _, known := engine.Runtimes[runtime]; !known {
		return sandbox.Info{}, fmt.Errorf("cannot use runtime %q: the docker engine does not have it: %w", runtime, fs.ErrInvalid)
	}
	out := sandbox.Info{
		Installation: p.o.Installation, Image: image.ID,
		Isolation: []string{"runtime " + runtime, "user", "no capabilities", "no new privileges", "read-only root", "no network"},
	}
	seccomp := false
	for _, o := range engine.SecurityOptions {
		seccomp = seccomp || strings.HasPrefix(o, "name=seccomp")
	}
	for _, c := range []struct {
		name string
		ok   bool
	}{
		{"seccomp", seccomp}, {"memory", engine.MemoryLimit}, {"swap", engine.SwapLimit},
		{"cpu", engine.CPUCfsQuota}, {"processes", engine.PidsLimit},
	} {
		if c.ok {
			out.Isolation = append(out.Isolation, c.name)
		} else {
			out.Missing = append(out.Missing, c.name)
		}
	}
	return out, nil
}

// Stats measures the container of a slot once.
func (p *Provider) Stats(ctx context.Context, slot berth.ID) (sandbox.Stats, error) {
	if _, err := berth.ParseID("slot", string(slot)); err != nil {
		return sandbox.Stats{}, err
	}
	answer, err := p.api.ContainerStatsOneShot(ctx, p.name(slot))
	if err != nil {
		return sandbox.Stats{}, p.explain("measure container of slot "+string(slot), err)
	}
	defer answer.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxStats)).Decode(&s); err != nil {
		return sandbox.Stats{}, fmt.Errorf("cannot decode measurement of slot %s: %w", slot, err)
	}
	return sandbox.Stats{
		MemoryBytes: int64(s.MemoryStats.Usage), MemoryLimit: int64(s.MemoryStats.Limit),
		CPUNanos: int64(s.CPUStats.CPUUsage.TotalUsage), Processes: int64(s.PidsStats.Current),
	}, nil
}
