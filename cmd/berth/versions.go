package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"berth"
	"berth/mounts"
)

const placeHelp = `
A path is given with its tree, such as main/members/me notes/todo.md, or without
one where ` + "`berth mount`" + ` has the whole bucket. Run it where the installation runs,
as its user or root.`

// A historyPlace is a path whose history is asked for.
type historyPlace struct {
	state string
	tree  berth.Tree // zero = the whole bucket
	path  string
}

// parse reads [TREE] PATH. The path may be left out where it may be the root.
func (p *historyPlace) parse(args []string, rootToo bool) (err error) {
	if len(args) == 2 || len(args) == 1 && rootToo && !strings.HasPrefix(args[0], "/") {
		if t, terr := berth.ParseTree(args[0]); terr == nil {
			p.tree, args = t, args[1:]
		} else if len(args) == 2 {
			return &usageError{terr}
		}
	}
	if len(args) == 1 {
		p.path = strings.Trim(filepath.Clean("/"+args[0]), "/")
	}
	if p.path == "" && !rootToo {
		return &usageError{errors.New("a PATH is needed")}
	}
	return nil
}

// with runs a command on a client of what runs on the state directory. A signal
// ends it.
func (p *historyPlace) with(cmd *cobra.Command, do func(ctx context.Context, c *mounts.Client) error) error {
	ctl, err := readControl(p.state)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client := mounts.NewClient(ctl.Mountd.Socket, ctl.Mountd.Token)
	defer client.Close()
	return do(ctx, client)
}

func (p *historyPlace) flag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.state, "state", defaultState, "the `DIR` of the installation, or of a `berth mount`")
}

func newVersionsCommand() *cobra.Command {
	var p historyPlace
	var asJSON, deleted bool
	var read string
	cmd := &cobra.Command{
		Use:   "versions [TREE] PATH",
		Short: "List or read earlier contents of a file, or list deleted files",
		Long: `List the earlier contents of a file that the bucket's history keeps, the latest
first, or write one of them to standard output. With --deleted PATH is a directory
(or left out), and the files that were deleted below it are listed.
` + placeHelp,
		Args: usageArgs(cobra.RangeArgs(0, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.parse(args, deleted); err != nil {
				return err
			}
			return p.with(cmd, func(ctx context.Context, c *mounts.Client) error {
				switch {
				case deleted:
					return p.listDeleted(ctx, c, asJSON, cmd.OutOrStdout(), cmd.ErrOrStderr())
				case read != "":
					return p.read(ctx, c, read, cmd.OutOrStdout())
				}
				return p.list(ctx, c, asJSON, cmd.OutOrStdout())
			})
		},
	}
	p.flag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON line for each version")
	cmd.Flags().BoolVar(&deleted, "deleted", false, "list the deleted files below a directory")
	cmd.Flags().StringVar(&read, "read", "", "write the content of the version with this `ID` to standard output")
	return cmd
}

func (p *historyPlace) list(ctx context.Context, c *mounts.Client, asJSON bool, out io.Writer) error {
	versions, err := c.Versions(ctx, p.tree, p.path)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, versions)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, v := range versions {
		fmt.Fprintln(w, versionLine(v))
	}
	return w.Flush()
}

func versionLine(v berth.Version) string {
	return fmt.Sprintf("%s\t%s\t%d\t%s", v.ID, v.Time.Local().Format("2006-01-02 15:04:05"), v.Size, v.End)
}

func printJSON[T any](out io.Writer, all []T) error {
	enc := json.NewEncoder(out)
	for _, v := range all {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

func (p *historyPlace) listDeleted(ctx context.Context, c *mounts.Client, asJSON bool, out, notes io.Writer) error {
	files, more, err := c.Deleted(ctx, p.tree, p.path)
	if err != nil {
		return err
	}
	if more {
		fmt.Fprintln(notes, "There may be more: name a directory to see those below it.")
	}
	if asJSON {
		return printJSON(out, files)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range files {
		fmt.Fprintf(w, "%s\t%s\n", versionLine(f.Version), printable(f.Path))
	}
	return w.Flush()
}

func (p *historyPlace) read(ctx context.Context, c *mounts.Client, id string, out io.Writer) error {
	body, size, err := c.OpenVersion(ctx, p.tree, p.path, id)
	if err != nil {
		return err
	}
	defer body.Close()
	if n, err := io.Copy(out, body); err != nil || n < size {
		return fmt.Errorf("cannot read version %s to its end, %d of %d bytes came: %w", id, n, size, errors.Join(err, io.ErrUnexpectedEOF))
	}
	return nil
}

func newRestoreCommand() *cobra.Command {
	var p historyPlace
	var id string
	cmd := &cobra.Command{
		Use:   "restore [TREE] PATH",
		Short: "Bring back an earlier content of a file, or a deleted file",
		Long: `Write an earlier content of a file to its path again: the latest that berth versions
lists, or the one that --version names. What is there now becomes a version itself
as soon as it is old enough.
` + placeHelp,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.parse(args, false); err != nil {
				return err
			}
			return p.with(cmd, func(ctx context.Context, c *mounts.Client) error {
				if id == "" {
					versions, err := c.Versions(ctx, p.tree, p.path)
					if err != nil {
						return err
					}
					if len(versions) == 0 {
						return fmt.Errorf("cannot restore %s: the history has no version of it (berth versions --deleted lists what was deleted): %w", p.path, fs.ErrNotExist)
					}
					id = versions[0].ID
				}
				if err := c.Restore(ctx, p.tree, p.path, id); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is as in version %s again\n", p.path, id)
				return err
			})
		},
	}
	p.flag(cmd)
	cmd.Flags().StringVar(&id, "version", "", "the `ID` of the version; default: the latest")
	return cmd
}
