package main

import (
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"berth/fusefs"
)

// guardCommand is how mountd and mount start their guard.
const guardCommand = "guard"

func newGuardCommand() *cobra.Command {
	return &cobra.Command{
		Use:    guardCommand,
		Short:  "End the mount of a mountd that was killed (started by mountd)",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return fusefs.ServeGuard() },
	}
}

// startGuard starts the guard of this process.
func startGuard() (*fusefs.Guard, error) {
	cmd := exec.Command("/proc/self/exe", guardCommand)
	cmd.Stderr = os.Stderr
	return fusefs.StartGuard(cmd)
}
