package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A control is what STATE/run/control.json tells the commands of the same
// machine (status, flush, signin) about the running installation, or the
// running `berth mount`. Only root can read it.
type control struct {
	PID       int         `json:"pid"`
	Mountd    socketConf  `json:"mountd"`
	Sandboxd  *socketConf `json:"sandboxd,omitempty"` // nil: there are no machines
	Store     storePlace  `json:"store"`
	URL       string      `json:"url,omitempty"`
	AppURL    string      `json:"app_url,omitempty"`
	Workspace string      `json:"workspace,omitempty"`
	User      string      `json:"user,omitempty"`
}

// A storePlace names the bucket in use.
type storePlace struct {
	URL      string `json:"url"`
	Endpoint string `json:"endpoint"` // the URL's host and port
	Bucket   string `json:"bucket"`
}

func controlFile(state string) string { return filepath.Join(state, "run", "control.json") }

// writeControl makes the installation known to the other commands.
func writeControl(state string, c control) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode %s: %w", controlFile(state), err)
	}
	return writeSecret(controlFile(state), append(data, '\n'))
}

// readControl returns how to reach what runs on the state directory.
func readControl(state string) (control, error) {
	var c control
	data, err := os.ReadFile(controlFile(state))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, fmt.Errorf("cannot reach a berth on state directory %s: none runs (start one with `berth up`, or name its directory with --state): %w", state, err)
	case err != nil:
		return c, fmt.Errorf("cannot reach the berth on state directory %s: %w", state, err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("cannot read %s: %w", controlFile(state), err)
	}
	return c, nil
}
