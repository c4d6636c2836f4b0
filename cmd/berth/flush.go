package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"berth"
	"berth/mounts"
)

func newFlushCommand() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "flush [TREE]",
		Short: "Wait until everything written so far is in the bucket",
		Long: `Wait until all that was written and closed before this command is in the bucket:
in the whole file system, or in one tree, such as main/members/me.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			tree := ""
			if len(args) == 1 {
				t, err := berth.ParseTree(args[0])
				if err != nil {
					return &usageError{err}
				}
				tree = t.String()
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return flush(ctx, state, tree, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&state, "state", defaultState, "the `DIR` of the installation, or of a `berth mount`")
	return cmd
}

// usageArgs makes a wrong number of arguments an error of the command line.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{err}
		}
		return nil
	}
}

// progressEvery is how often a flush on a terminal says what is left.
const progressEvery = time.Second

func flush(ctx context.Context, state, tree string, progress io.Writer) error {
	ctl, err := readControl(state)
	if err != nil {
		return err
	}
	client := mounts.NewClient(ctl.Mountd.Socket, ctl.Mountd.Token)
	defer client.Close()
	done := make(chan error, 1)
	go func() { done <- client.Flush(ctx, tree) }()
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	told := false
	for {
		select {
		case err := <-done:
			if told {
				fmt.Fprint(progress, "\r\x1b[K")
			}
			if errors.Is(err, context.Canceled) {
				return errors.New("cannot flush: interrupted; uploads go on")
			}
			return err
		case <-ticker.C:
			if !isTerminal(progress) {
				continue
			}
			if report, err := readStatus(ctx, state); err == nil {
				fmt.Fprintf(progress, "\r\x1b[K%d files (%s) left", report.FileSystem.Dirty, size(report.FileSystem.DirtyBytes))
				told = true
			}
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
