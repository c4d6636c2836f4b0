// Package sandbox runs the machines of chats: the manager with its pool, the
// life cycle, the tools, and the socket through which the gateway asks sandboxd
// for containers.
//
// Terms. A machine is the container of one chat; its id is made with the chat
// and kept over sleep. A warm container is started and unclaimed: it has a slot,
// a directory of the host into which the chat's view is mounted when it is
// claimed. A container, its slot and its socket serve one claim in their life.
//
// Model. waiting (never started) -> creating -> running <-> sleeping ->
// terminated; failed with a reason. Sleeping keeps files and no memory: waking
// is another container with the same view. Each machine has one transition at a
// time; tool calls run side by side on a running machine.
//
// Guarantees. A chat has at most one container, whatever races: one transition
// per machine in this process, and a compare-and-swap of the machine's record
// between processes. A container runs no command before its view is mounted and
// its record is written. What a dead gateway left is repaired by Start.
//
// Trust. The agent in a machine is hostile: its answers are bounded in size and
// time, decoded strictly, and decide neither identity nor state nor idle time.
package sandbox

import (
	"context"
	"errors"
	"time"

	"berth"
)

// ErrBusy says that a bound on machines or calls is reached; later it may not be.
var ErrBusy = errors.New("too many at once")

// ErrTerminated says that the machine was destroyed. Its id is never used again.
var ErrTerminated = errors.New("the machine was destroyed")

// A Provider makes containers. It can be used from many goroutines. A slot
// names a container: there is at most one per slot. Errors match fs.ErrNotExist
// for a slot or container that does not exist, fs.ErrExist for a second
// container of a slot, and berth.ErrUnavailable when the engine is away.
type Provider interface {
	// Info tells what containers are made of and what confines them.
	Info(ctx context.Context) (Info, error)
	// Create starts a container on a slot that mountd has made.
	Create(ctx context.Context, slot berth.ID) (Container, error)
	// List returns the installation's containers, also those that have ended.
	List(ctx context.Context) ([]Container, error)
	// Stats measures the container of a slot.
	Stats(ctx context.Context, slot berth.ID) (Stats, error)
	// Destroy ends and removes the container of a slot. One that does not exist
	// is not an error. When it returns no process of the container is left.
	Destroy(ctx context.Context, slot berth.ID) error
}

// Info describes a provider.
type Info struct {
	Installation string   `json:"installation"` // names this installation among others on the same engine or bucket
	Image        string   `json:"image"`        // the image's digest
	Isolation    []string `json:"isolation"`    // what is enforced, such as "memory"
	Missing      []string `json:"missing"`      // what should be and is not
}

// A Container is one started container.
type Container struct {
	Slot    berth.ID `json:"slot"`
	ID      string   `json:"id"`       // the engine's
	InitPID int      `json:"init_pid"` // of its first process, as the host sees it; 0 when it has ended
	Image   string   `json:"image"`    // the image's digest
	Running bool     `json:"running"`
	Exit    string   `json:"exit,omitempty"` // how it ended
}

// Stats is a measurement of a container.
type Stats struct {
	MemoryBytes int64 `json:"memory_bytes"`
	MemoryLimit int64 `json:"memory_limit"`
	CPUNanos    int64 `json:"cpu_nanos"` // used since its start
	Processes   int64 `json:"processes"`
}

// Slots makes and mounts the directories through which views reach containers.
type Slots interface {
	// NewSlot makes an empty slot.
	NewSlot(ctx context.Context) (berth.ID, error)
	// MountView mounts a view into a slot. Repeated with more experts it adds
	// what is missing.
	MountView(ctx context.Context, slot berth.ID, v berth.View) error
	// ReleaseSlot unmounts and removes a slot. One that does not exist is not an error.
	ReleaseSlot(ctx context.Context, slot berth.ID) error
	// Slots returns the slots that exist.
	Slots(ctx context.Context) ([]berth.ID, error)
}

// Trees keeps the files that machines work on.
type Trees interface {
	// Flush returns when all that was written below a tree (Tree.String) before
	// the call is in the bucket.
	Flush(ctx context.Context, tree string) error
	// RemoveTree removes a tree with every object. A missing one is not an error.
	RemoveTree(ctx context.Context, t berth.Tree) error
	// Checkpoint marks the present content of trees and returns the mark.
	Checkpoint(ctx context.Context, trees []berth.Tree) (uint64, error)
}

// Mounts is all that the manager asks of mountd.
type Mounts interface {
	Slots
	Trees
}

// A State says where a machine is in its life.
type State string

// The states of a machine.
const (
	Waiting    State = "waiting"
	Creating   State = "creating"
	Running    State = "running"
	Sleeping   State = "sleeping"
	Terminated State = "terminated"
	Failed     State = "failed"
)

// A Machine is what can be said of a machine.
type Machine struct {
	ID        berth.ID   `json:"id"`
	View      berth.View `json:"view"`
	State     State      `json:"state"`
	Reason    string     `json:"reason,omitempty"` // why it is asleep or failed
	Image     string     `json:"image,omitempty"`  // digest of what it ran on last
	Isolation []string   `json:"isolation,omitempty"`
	Missing   []string   `json:"missing,omitempty"` // what its runtime does not enforce
	Since     time.Time  `json:"since"`
}
