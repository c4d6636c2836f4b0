package main

import (
	"encoding/hex"
	"fmt"
	"io/fs"
)

// gatewayConfig is what `berth gateway` reads from its parent.
type gatewayConfig struct {
	Listen      string `json:"listen"`       // HOST:PORT; port 0 is any free one
	PreviewHost string `json:"preview_host"` // such as gw.localhost
	Secret      string `json:"secret"`       // the installation's, 64 hexadecimal digits

	ViewDir  string     `json:"view_dir"`  // the gateway's own bind of all trees
	SlotsDir string     `json:"slots_dir"` // where the machines' slots are
	Mountd   socketConf `json:"mountd"`
	// Sandboxd is nil when sandboxes are off.
	Sandboxd *socketConf `json:"sandboxd"`

	Pool              int     `json:"pool"`        // warm containers to keep ready
	MaxRunning        int     `json:"max_running"` // machines at once; 0 is no bound
	IdleMinutesMember float64 `json:"idle_minutes_member"`
	IdleMinutesKey    float64 `json:"idle_minutes_key"`
}

// socketConf says how to reach another process of the installation.
type socketConf struct {
	Socket string `json:"socket"`
	Token  string `json:"token"`
}

// gatewayReady is what the gateway tells its parent.
type gatewayReady struct {
	Ready bool   `json:"ready"`
	URL   string `json:"url"`     // of the API, by address
	App   string `json:"app_url"` // of the web app, on the preview host
}

// secretBytes returns the installation's secret.
func (c gatewayConfig) secretBytes() ([]byte, error) {
	secret, err := hex.DecodeString(c.Secret)
	if err != nil || len(secret) != 32 {
		return nil, fmt.Errorf("invalid secret: it must be 64 hexadecimal digits: %w", fs.ErrInvalid)
	}
	return secret, nil
}
