// Command berth-agent is PID 1 of a machine: it dials the gateway's socket and
// serves commands and files. It takes no arguments; it starts itself again as
// "berth-agent supervise" for each command. See package agent.
package main

import (
	"context"
	"fmt"
	"os"

	"berth"
	"berth/sandbox/agent"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "supervise" {
		os.Exit(agent.Supervise())
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) > 1 {
		return fmt.Errorf("cannot use argument %q: berth-agent takes none", os.Args[1])
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find own binary: %w", err)
	}
	return agent.Serve(context.Background(), agent.Options{
		Socket: agent.SocketPath, Home: berth.Home, Shell: "/bin/bash", Env: agent.Environment(berth.Home),
		Supervisor: []string{self, "supervise"}, Init: os.Getpid() == 1,
	})
}
