package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"berth"
	"berth/api"
)

// An announcement is the line of `berth up --json`.
type announcement struct {
	URL           string `json:"url"`
	PreviewHost   string `json:"preview_host"`
	OperatorToken string `json:"operator_token"`
	AdminToken    string `json:"admin_token"`
	MemberToken   string `json:"member_token"`
	APIKey        string `json:"api_key"`
	Workspace     string `json:"workspace"`
	User          string `json:"user"`
	State         string `json:"state"`
	SignInURL     string `json:"signin_url"` // single-use, for ten minutes
}

// announce says that the installation is ready, to a program or to a person.
func (in *installation) announce(stdout io.Writer, asJSON bool) error {
	link, err := signInLink(in.secret, in.gateway.App, berth.ID(in.creds.Workspace), berth.ID(in.creds.User), time.Now())
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(stdout).Encode(announcement{
			URL: in.gateway.URL, PreviewHost: in.conf.PreviewHost,
			OperatorToken: in.creds.OperatorToken, AdminToken: in.creds.AdminToken,
			MemberToken: in.creds.MemberToken, APIKey: in.creds.APIKey,
			Workspace: in.creds.Workspace, User: in.creds.User, State: in.state.path, SignInURL: link,
		})
	}
	program, of := programName(), ""
	if in.state.path != defaultState {
		of = " --state " + in.state.path
	}
	_, err = fmt.Fprintf(stdout, `
Berth is ready at %s

Sign in with this link, once, within %v (another one: %s signin%s):
  %s

Tokens of operator, admin, member and the API key, which only root can read:
  %s

To try, in another terminal as root:
  . %s
  %s tool hello bash command='date > now.txt; cat now.txt'
  %s files cat me/profy/hello/now.txt

`, in.gateway.URL, api.SignInLinkLife, program, of, link, in.state.credentialsFile(), in.state.memberEnvFile(), program, program)
	return err
}

// programName is how a person calls this binary: by name where PATH finds it.
func programName() string {
	exe, err := os.Executable()
	if err != nil {
		return "berth"
	}
	if found, err := exec.LookPath("berth"); err == nil {
		if found, err := filepath.EvalSymlinks(found); err == nil && found == exe {
			return "berth"
		}
	}
	return exe
}

// signInLink makes a link that signs the user in at the web page, once.
func signInLink(secret, app string, workspace, user berth.ID, now time.Time) (string, error) {
	key, err := hex.DecodeString(secret)
	if err != nil {
		return "", fmt.Errorf("cannot make sign-in link: %w", err)
	}
	return app + "/signin?t=" + api.MintSignIn(key, workspace, user, now), nil
}
