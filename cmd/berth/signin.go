package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth"
)

func newSignInCommand() *cobra.Command {
	var state, user string
	cmd := &cobra.Command{
		Use:   "signin",
		Short: "Print a fresh sign-in link of the running installation",
		Long: `Print a link that signs a member in at the web page, once, within ten minutes.
It needs to read the state directory: it is for the operator on the same machine.
A member makes such a link with POST /v1/signin-links.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctl, err := readControl(state)
			if err != nil {
				return err
			}
			if user == "" {
				user = ctl.User
			}
			id, err := berth.ParseID("user", user)
			if err != nil {
				return err
			}
			secret, err := os.ReadFile((&stateDir{path: state}).secretFile())
			if err != nil {
				return fmt.Errorf("cannot read secret: %w", err)
			}
			link, err := signInLink(strings.TrimSpace(string(secret)), ctl.AppURL, berth.ID(ctl.Workspace), id, time.Now())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), link)
			return err
		},
	}
	cmd.Flags().StringVar(&state, "state", defaultState, "the `DIR` of the installation")
	cmd.Flags().StringVar(&user, "user", "", "the `MEMBER` to sign in; default: the first one")
	return cmd
}
