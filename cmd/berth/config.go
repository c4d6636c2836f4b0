package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"berth"
	"berth/fusefs"
)

// upConfig is what an installation can be told. deploy/berth.yaml documents
// each field; a test holds the two together.
type upConfig struct {
	State       string `yaml:"state"`
	Listen      string `yaml:"listen"`
	PreviewHost string `yaml:"preview_host"`
	GatewayUID  int    `yaml:"gateway_uid"`
	Workspace   string `yaml:"workspace"`
	User        string `yaml:"user"`
	// After how many minutes without a call a machine sleeps.
	IdleMinutesMember float64 `yaml:"idle_minutes_member"`
	IdleMinutesKey    float64 `yaml:"idle_minutes_key"`
	HistoryDays       float64 `yaml:"history_days"` // how long earlier contents of files are kept

	Store       storeSettings    `yaml:"store"`
	Quotas      fusefs.Quotas    `yaml:"quotas"`
	Sandboxes   sandboxSettings  `yaml:"sandboxes"`
	credentials storeCredentials // from the environment
}

// storeSettings names the bucket; without a URL the embedded store is used.
type storeSettings struct {
	URL       string `yaml:"url"`
	Bucket    string `yaml:"bucket"`
	Region    string `yaml:"region"`
	Exclusive bool   `yaml:"exclusive"`
}

type sandboxSettings struct {
	Enabled    bool   `yaml:"enabled"`
	Image      string `yaml:"image"`
	Runtime    string `yaml:"runtime"`
	DockerHost string `yaml:"docker_host"`
	Pool       int    `yaml:"pool"`
	MaxRunning int    `yaml:"max_running"`
}

type storeCredentials struct{ accessKey, secretKey, session string }

const (
	defaultState  = "/var/lib/berth"
	defaultListen = "127.0.0.1:8321"
	defaultImage  = "berth-machine:core"

	embeddedBucket = "berth"

	// A slot's socket, STATE/slots/ID/ctl/agent.sock, must fit into the 107
	// bytes of a socket's path.
	maxStatePath = 107 - len("/slots/s123456789012/ctl/agent.sock")
)

// newUpConfig returns the configuration of an installation that was told nothing.
func newUpConfig() upConfig {
	return upConfig{
		State:             defaultState,
		Listen:            defaultListen,
		PreviewHost:       "berth.localhost",
		GatewayUID:        64180,
		Workspace:         "main",
		User:              "me",
		IdleMinutesMember: 30, IdleMinutesKey: 60,
		HistoryDays: 30,
		Store:       storeSettings{Region: "us-east-1"},
		Quotas:      defaultQuotas(),
		Sandboxes: sandboxSettings{
			Enabled: true, Image: defaultImage, Runtime: "runc", Pool: 2,
		},
	}
}

// readFile reads a YAML file into c. A field that the file does not name keeps
// its value; one that c does not know is an error.
func (c *upConfig) readFile(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("cannot read configuration: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil && err != io.EOF {
		return fmt.Errorf("cannot read configuration %s: %w", name, err)
	}
	if err := dec.Decode(new(upConfig)); err != io.EOF {
		return fmt.Errorf("cannot read configuration %s: more than one YAML document: %w", name, fs.ErrInvalid)
	}
	return nil
}

// readEnvironment takes what is only told by the environment: credentials, the
// engine's address, and the idle time that the hosted product's settings name.
func (c *upConfig) readEnvironment(getenv func(string) string) error {
	c.credentials = storeCredentials{getenv("AWS_ACCESS_KEY_ID"), getenv("AWS_SECRET_ACCESS_KEY"), getenv("AWS_SESSION_TOKEN")}
	if c.Sandboxes.DockerHost == "" {
		c.Sandboxes.DockerHost = getenv("DOCKER_HOST")
	}
	if s := getenv("SANDBOX_IDLE_MINUTES"); s != "" {
		minutes, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return fmt.Errorf("cannot use SANDBOX_IDLE_MINUTES=%q: it is not a number: %w", s, fs.ErrInvalid)
		}
		c.IdleMinutesMember, c.IdleMinutesKey = minutes, minutes
	}
	return nil
}

// embedded reports whether berth runs the store itself.
func (c *upConfig) embedded() bool { return c.Store.URL == "" }

// validate checks all values before anything is opened or made; the error
// names every field that is wrong.
func (c *upConfig) validate() error {
	_, wsErr := berth.ParseID("workspace", c.Workspace)
	_, userErr := berth.ParseID("user", c.User)
	err := errors.Join(c.checkState(), c.checkListen(), c.checkPreviewHost(), c.checkStore(), c.checkQuotas(), c.checkSandboxes(), wsErr, userErr)
	if c.GatewayUID <= 0 || c.GatewayUID == machineUID || c.GatewayUID > 1<<31-2 {
		err = errors.Join(err, fmt.Errorf("invalid gateway_uid %d: it must be a user id of its own, neither root's nor the machines' (%d): %w",
			c.GatewayUID, machineUID, fs.ErrInvalid))
	}
	return err
}

// machineUID and machineGID own all files inside a machine, see deploy/image.
const machineUID, machineGID = 1000, 1000

func (c *upConfig) checkState() error {
	switch {
	case c.State == "":
		return fmt.Errorf("invalid state: it is empty: %w", fs.ErrInvalid)
	case !filepath.IsAbs(c.State):
		return fmt.Errorf("invalid state %q: the path must be absolute: %w", c.State, fs.ErrInvalid)
	case filepath.Clean(c.State) == "/":
		return fmt.Errorf("invalid state %q: it needs a directory of its own: %w", c.State, fs.ErrInvalid)
	case !(c.HistoryDays > 0 && c.HistoryDays <= 36500):
		return fmt.Errorf("invalid history_days %v: it must be more than 0 and at most 36500: %w", c.HistoryDays, fs.ErrInvalid)
	case len(c.State) > maxStatePath:
		return fmt.Errorf("invalid state %q: the path has %d bytes, at most %d are possible (paths of unix sockets are short): %w",
			c.State, len(c.State), maxStatePath, fs.ErrInvalid)
	}
	return nil
}

func (c *upConfig) checkListen() error {
	_, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("invalid listen %q: it must be HOST:PORT: %w", c.Listen, fs.ErrInvalid)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("invalid listen %q: %q is not a port: %w", c.Listen, port, fs.ErrInvalid)
	} else if strings.HasPrefix(c.Listen, ":") && n == 0 {
		return fmt.Errorf("invalid listen %q: port 0 needs a host: %w", c.Listen, fs.ErrInvalid)
	}
	return nil
}

func (c *upConfig) checkPreviewHost() error {
	for label := range strings.SplitSeq(c.PreviewHost, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return fmt.Errorf("invalid preview_host %q: it must be a host name in lower case, without a port: %w", c.PreviewHost, fs.ErrInvalid)
		}
	}
	return nil
}

func (c *upConfig) checkStore() error {
	if c.embedded() {
		if c.Store.Bucket != "" {
			return fmt.Errorf("invalid store: bucket %q is given without url; the embedded store has its own bucket: %w", c.Store.Bucket, fs.ErrInvalid)
		}
		return nil
	}
	u, err := url.Parse(c.Store.URL)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return fmt.Errorf("invalid store url %q: it must be http://HOST or https://HOST: %w", c.Store.URL, fs.ErrInvalid)
	case u.User != nil:
		return fmt.Errorf("invalid store url: credentials belong into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, not into the url: %w", fs.ErrInvalid)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
		return fmt.Errorf("invalid store url %q: it may have no path; the bucket is given by itself: %w", c.Store.URL, fs.ErrInvalid)
	case c.Store.Bucket == "":
		return fmt.Errorf("invalid store: url is given without bucket: %w", fs.ErrInvalid)
	case c.credentials.accessKey == "" || c.credentials.secretKey == "":
		return fmt.Errorf("cannot use store %s: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set: %w", c.Store.URL, fs.ErrInvalid)
	}
	return nil
}

// defaultQuotas are the limits of an installation that was told none.
func defaultQuotas() fusefs.Quotas {
	tree := fusefs.Quota{Bytes: 20 << 30, Files: 1_000_000}
	return fusefs.Quotas{Member: tree, Shared: tree, Session: tree, Home: tree,
		Workspace: fusefs.Quota{Bytes: 10 * tree.Bytes, Files: 10 * tree.Files}}
}

func (c *upConfig) checkQuotas() error {
	q := c.Quotas
	for name, quota := range map[string]fusefs.Quota{
		"member": q.Member, "shared": q.Shared, "session": q.Session, "home": q.Home, "workspace": q.Workspace,
	} {
		if quota.Bytes < 0 || quota.Files < 0 {
			return fmt.Errorf("invalid quotas: %s is below zero; 0 is no limit: %w", name, fs.ErrInvalid)
		}
	}
	return nil
}

func (c *upConfig) checkSandboxes() error {
	s := c.Sandboxes
	switch {
	case !s.Enabled:
		return nil
	case s.Image == "":
		return fmt.Errorf("invalid sandboxes: image is empty: %w", fs.ErrInvalid)
	case s.Runtime == "":
		return fmt.Errorf("invalid sandboxes: runtime is empty: %w", fs.ErrInvalid)
	case s.Pool < 0 || s.Pool > 64:
		return fmt.Errorf("invalid sandboxes: pool %d is not within 0 and 64: %w", s.Pool, fs.ErrInvalid)
	case s.MaxRunning < 0:
		return fmt.Errorf("invalid sandboxes: max_running %d is less than 0: %w", s.MaxRunning, fs.ErrInvalid)
	case !(c.IdleMinutesMember > 0 && c.IdleMinutesKey > 0):
		return fmt.Errorf("invalid idle_minutes_member or idle_minutes_key: they must be more than 0: %w", fs.ErrInvalid)
	}
	return nil
}
