package main

import (
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func newKeysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "List, make and revoke API keys",
		Long:  "List, make and revoke a workspace's API keys. It takes the token of the workspace's admin.\n" + clientHelp,
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeysListCommand(), newKeysAddCommand(), newKeysRemoveCommand())
	return cmd
}

// keyInfo is what the gateway tells of a key.
type keyInfo struct {
	ID      string     `json:"id"`
	Label   string     `json:"label"`
	Created time.Time  `json:"created"`
	Revoked *time.Time `json:"revoked"`
	Key     string     `json:"key"`
}

func newKeysListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the keys",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := newClient()
			if err != nil {
				return err
			}
			var list struct{ Keys []keyInfo }
			if err := c.call(cmd.Context(), http.MethodGet, "/v1/keys", nil, &list); err != nil {
				return fmt.Errorf("cannot list keys: %w", err)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			const day = "2006-01-02 15:04"
			for _, k := range list.Keys {
				state := "made " + k.Created.Local().Format(day)
				if k.Revoked != nil {
					state += ", revoked " + k.Revoked.Local().Format(day)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", k.ID, printable(k.Label), state)
			}
			return w.Flush()
		},
	}
}

func newKeysAddCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "add [LABEL]",
		Short: "Make a key and print its id and secret, which is not shown again",
		Args:  usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := newClient()
			if err != nil {
				return err
			}
			body := map[string]string{}
			if len(args) == 1 {
				body["label"] = args[0]
			}
			var made keyInfo
			if err := c.call(cmd.Context(), http.MethodPost, "/v1/keys", body, &made); err != nil {
				return fmt.Errorf("cannot make key: %w", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", made.ID, made.Key)
			return err
		},
	}
}

func newKeysRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm ID",
		Short: "Revoke a key: its access and streams end at once and its machines stop",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := newClient()
			if err != nil {
				return err
			}
			if err := c.call(cmd.Context(), http.MethodDelete, "/v1/keys/"+url.PathEscape(args[0]), nil, nil); err != nil {
				return fmt.Errorf("cannot revoke key %q: %w", args[0], err)
			}
			return nil
		},
	}
}
