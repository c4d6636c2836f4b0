// Package providertest holds what tests of machines need: a contract suite for
// providers, and implementations in memory of all that a manager uses. The
// provider in memory runs the real agent in the test's process: commands run on
// the host, as the user that runs the test, in temporary directories.
package providertest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"berth"
	"berth/sandbox"
	"berth/sandbox/agent"
)

// RunSupervisor makes a test binary serve as the supervisor of commands: a
// TestMain calls it first. It does not return in a process that is one.
func RunSupervisor() {
	if len(os.Args) == 2 && os.Args[1] == "supervise" {
		os.Exit(agent.Supervise())
	}
}

// Memory is a provider whose containers are agents in this process.
type Memory struct {
	// Serve is the agent of containers that are made from now on; agent.Serve
	// unless a test wants one that lies.
	Serve func(context.Context, agent.Options) error
	// Installation is what Info calls this installation.
	Installation string

	slotsDir string

	mu         sync.Mutex // protects what follows
	containers map[berth.ID]*memoryContainer
	created    int
	down       error // what every method answers, if set
}

type memoryContainer struct {
	sandbox.Container
	cancel context.CancelFunc
	done   chan struct{}
}

// NewMemory returns a provider for the slots below slotsDir.
func NewMemory(slotsDir string) *Memory {
	return &Memory{Serve: agent.Serve, Installation: "memory", slotsDir: slotsDir, containers: map[berth.ID]*memoryContainer{}}
}

// SetDown makes every method fail with err, or work again with nil.
func (p *Memory) SetDown(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = err
}

// Created returns how many containers were ever made.
func (p *Memory) Created() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.created
}

// Kill ends a container behind everybody's back.
func (p *Memory) Kill(slot berth.ID) {
	p.mu.Lock()
	c := p.containers[slot]
	c.Running, c.InitPID, c.Exit = false, 0, "killed"
	p.mu.Unlock()
	c.cancel()
	<-c.done
}

// Info implements sandbox.Provider.
func (p *Memory) Info(context.Context) (sandbox.Info, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return sandbox.Info{Installation: p.Installation, Image: "memory", Missing: []string{"everything"}}, p.down
}

// Create implements sandbox.Provider.
func (p *Memory) Create(_ context.Context, slot berth.ID) (sandbox.Container, error) {
	none := sandbox.Container{}
	if _, err := berth.ParseID("slot", string(slot)); err != nil {
		return none, err
	}
	dir := filepath.Join(p.slotsDir, string(slot))
	if _, err := os.Stat(filepath.Join(dir, "home")); err != nil {
		return none, fmt.Errorf("cannot make container: slot %s does not exist: %w", slot, fs.ErrNotExist)
	}
	self, err := os.Executable()
	if err != nil {
		return none, fmt.Errorf("cannot find own binary: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down != nil {
		return none, p.down
	}
	if p.containers[slot] != nil {
		return none, fmt.Errorf("cannot make container: slot %s has one: %w", slot, fs.ErrExist)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &memoryContainer{cancel: cancel, done: make(chan struct{}), Container: sandbox.Container{
		Slot: slot, ID: "memory-" + string(slot), InitPID: os.Getpid(), Image: "memory", Running: true,
	}}
	home := filepath.Join(dir, "home", "user")
	serve := p.Serve
	go func() {
		defer close(c.done)
		serve(ctx, agent.Options{
			Socket: filepath.Join(dir, "ctl", "agent.sock"), Home: home, Shell: "/bin/sh",
			Env: agent.Environment(home), Supervisor: []string{self, "supervise"},
		})
	}()
	p.containers[slot] = c
	p.created++
	return c.Container, nil
}

// List implements sandbox.Provider.
func (p *Memory) List(context.Context) ([]sandbox.Container, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []sandbox.Container{}
	for _, c := range p.containers {
		out = append(out, c.Container)
	}
	slices.SortFunc(out, func(a, b sandbox.Container) int { return strings.Compare(string(a.Slot), string(b.Slot)) })
	return out, p.down
}

// Stats implements sandbox.Provider.
func (p *Memory) Stats(_ context.Context, slot berth.ID) (sandbox.Stats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.containers[slot] == nil {
		return sandbox.Stats{}, fmt.Errorf("cannot measure container: slot %s has none: %w", slot, fs.ErrNotExist)
	}
	return sandbox.Stats{MemoryBytes: 1, MemoryLimit: 1, Processes: 1}, p.down
}

// Destroy implements sandbox.Provider.
func (p *Memory) Destroy(_ context.Context, slot berth.ID) error {
	if _, err := berth.ParseID("slot", string(slot)); err != nil {
		return err
	}
	p.mu.Lock()
	if p.down != nil {
		defer p.mu.Unlock()
		return p.down
	}
	c := p.containers[slot]
	delete(p.containers, slot)
	p.mu.Unlock()
	if c != nil {
		c.cancel()
		<-c.done
	}
	return nil
}

var _ sandbox.Provider = (*Memory)(nil)
