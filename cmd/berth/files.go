package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func newFilesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "files",
		Short: "List, read, write and remove files",
		Long: `Reach files through the gateway. A PATH begins with its area: me (the member's
disk), shared (the team's), or chats/CHAT (a chat's working directory).

  berth files ls me
  berth files put notes.md me/docs/notes.md
` + clientHelp,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFilesListCommand(), newFilesCatCommand(), newFilesPutCommand(), newFilesRemoveCommand())
	return cmd
}

// filesPath returns the address of a path, and refuses what has no area.
func filesPath(path string) (string, error) {
	area, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	chat, _, _ := strings.Cut(rest, "/")
	if area != "me" && area != "shared" && (area != "chats" || chat == "") {
		return "", &usageError{fmt.Errorf("cannot use path %q: it must begin with me, shared or chats/CHAT", path)}
	}
	return "/v1/files/" + escapePath(strings.TrimPrefix(path, "/")), nil
}

// withPath runs a command on a client and the address of its path.
func withPath(cmd *cobra.Command, path string, do func(ctx context.Context, c *client, address string) error) error {
	address, err := filesPath(path)
	if err != nil {
		return err
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	return do(cmd.Context(), c, address)
}

func newFilesListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls PATH",
		Short: "List a directory",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withPath(cmd, args[0], func(ctx context.Context, c *client, address string) error {
				return c.listFiles(ctx, address, asJSON, cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON line for each name")
	return cmd
}

// listFiles prints a directory page by page.
func (c *client) listFiles(ctx context.Context, address string, asJSON bool, out io.Writer) error {
	for after := ""; ; {
		var page struct {
			Entries []json.RawMessage
			Next    string
		}
		if err := c.call(ctx, http.MethodGet, address+"?list=1&after="+url.QueryEscape(after), nil, &page); err != nil {
			return err
		}
		if err := printEntries(page.Entries, asJSON, out); err != nil {
			return err
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

func printEntries(entries []json.RawMessage, asJSON bool, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, raw := range entries {
		if asJSON {
			if _, err := fmt.Fprintf(out, "%s\n", raw); err != nil {
				return err
			}
			continue
		}
		var e struct {
			Name, Kind, Mode, Target string
			NameBytes                []byte `json:"name_base64"`
			Size                     int64
			MTime                    time.Time
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("cannot read the gateway's answer: %w", err)
		}
		name := e.Name
		if e.NameBytes != nil {
			name = string(e.NameBytes)
		}
		name = printable(name)
		switch e.Kind {
		case "dir":
			name += "/"
		case "symlink":
			name += " -> " + printable(e.Target)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", e.Mode, e.Kind, e.Size, e.MTime.Local().Format("2006-01-02 15:04:05"), name)
	}
	return w.Flush()
}

func newFilesCatCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cat PATH",
		Short: "Write a file to standard output",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withPath(cmd, args[0], func(ctx context.Context, c *client, address string) error {
				res, err := c.send(ctx, http.MethodGet, address+"?download=1", nil)
				if err != nil {
					return err
				}
				defer res.Body.Close()
				if res.Header.Get("Content-Disposition") == "" {
					return fmt.Errorf("cannot read %s: it is a directory (berth files ls lists it)", args[0])
				}
				if _, err := io.Copy(cmd.OutOrStdout(), res.Body); err != nil {
					return fmt.Errorf("cannot read %s to its end: %w", args[0], err)
				}
				return nil
			})
		},
	}
}

func newFilesPutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "put FILE PATH",
		Short: "Write a local file (- is standard input) to a path",
		Long:  "Write a local file (- is standard input) to a path. A PATH that ends in a slash names the directory to put it in.",
		Args:  usageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := args[0], args[1]
			in := cmd.InOrStdin()
			if from != "-" {
				f, err := os.Open(from)
				if err != nil {
					return fmt.Errorf("cannot read file: %w", err)
				}
				defer f.Close()
				in = f
				if strings.HasSuffix(to, "/") {
					to += from[strings.LastIndex(from, "/")+1:]
				}
			}
			return withPath(cmd, to, func(ctx context.Context, c *client, address string) error {
				res, err := c.send(ctx, http.MethodPut, address, in)
				if err != nil {
					return err
				}
				return res.Body.Close()
			})
		},
	}
}

func newFilesRemoveCommand() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "rm PATH",
		Short: "Remove a file or an empty directory",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withPath(cmd, args[0], func(ctx context.Context, c *client, address string) error {
				if recursive {
					address += "?recursive=1"
				}
				return c.call(ctx, http.MethodDelete, address, nil, nil)
			})
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "remove a directory with all in it")
	return cmd
}
