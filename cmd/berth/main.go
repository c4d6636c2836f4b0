// Command berth is the workspace gateway for AI agents: one binary whose
// commands run an installation (up), its parts, and talk to it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(exitCode(os.Stderr, run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)))
}

// run executes the command that args name. Each command listens to the signals
// it wants: a child of `berth up` must not end at the terminal's SIGINT.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

const rootHelp = `Berth projects a bucket into every agent's sandbox as an ordinary directory,
runs the sandboxes, and shows every change the moment it is made.

Exit codes: 0 done; 1 it did not succeed, the cause is on stderr; 2 the command
line is wrong.`

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "berth",
		Short:         "A workspace gateway for AI agents",
		Long:          rootHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		newUpCommand(),
		newDoctorCommand(),
		newStatusCommand(),
		newFlushCommand(),
		newVersionsCommand(),
		newRestoreCommand(),
		newSignInCommand(),
		newMountCommand(),
		newToolCommand(),
		newEventsCommand(),
		newFilesCommand(),
		newKeysCommand(),
		// Those that up starts.
		newStoreCommand(),
		newMountdCommand(),
		newGuardCommand(),
		newSandboxdCommand(),
		newGatewayCommand(),
	)
	return root
}

// A usageError says that the command line is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// errSilent ends a command with exit code 1 when it has said all there is to say.
var errSilent = errors.New("the command did not succeed")

// exitCode is the one table from errors to exit codes; it prints the error.
func exitCode(stderr io.Writer, err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errSilent):
		return 1
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "berth: %v\n(berth COMMAND --help tells more)\n", err)
		return 2
	}
	fmt.Fprintf(stderr, "berth: %v\n", err)
	return 1
}
