package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/fusefs/object"
)

// testInstallation returns one with a state directory and nothing started.
func testInstallation(t *testing.T, change func(*upConfig)) *installation {
	t.Helper()
	conf := newUpConfig()
	conf.State = filepath.Join(openDir(t), "state")
	if change != nil {
		change(&conf)
	}
	in := &installation{conf: &conf, out: io.Discard, log: slog.New(slog.DiscardHandler)}
	if err := in.initState(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.state.Close() })
	in.storeURL = "http://127.0.0.1:1234"
	in.store = storeConfig{Bucket: embeddedBucket, AccessKey: "store-access", SecretKey: "store-secret"}
	in.gateway = gatewayReady{URL: "http://127.0.0.1:4321", App: "http://berth.localhost:4321"}
	return in
}

func TestMountdGetsTheStore(t *testing.T) {
	own := testInstallation(t, nil).mountdConfig()
	if s := own.Store; s.Bucket != embeddedBucket || s.AccessKey != "store-access" || s.SecretKey != "store-secret" || !s.Exclusive {
		t.Errorf("embedded store: got %+v", s)
	}
	other := testInstallation(t, func(c *upConfig) {
		c.Store = storeSettings{URL: "https://s3", Bucket: "b", Region: "r"}
		c.credentials = storeCredentials{accessKey: "access", secretKey: "secret"}
	}).mountdConfig()
	if s := other.Store; s.Bucket != "b" || s.Region != "r" || s.AccessKey != "access" || s.SecretKey != "secret" || s.Exclusive {
		t.Errorf("store that is configured: got %+v", s)
	}
	if own.SocketToken == "" || own.SocketToken == other.SocketToken {
		t.Errorf("got socket tokens %q and %q, want two different ones", own.SocketToken, other.SocketToken)
	}
}

func TestGatewayKeepsItsPort(t *testing.T) {
	in := testInstallation(t, func(c *upConfig) { c.Listen = "127.0.0.1:0" })
	in.gateway = gatewayReady{}
	first, err := in.gatewayConfig()
	if err != nil || first.Listen != "127.0.0.1:0" {
		t.Errorf("first start: got listen %q, %v", first.Listen, err)
	}
	in.gateway.URL = "http://127.0.0.1:4321"
	again, err := in.gatewayConfig()
	if err != nil || again.Listen != "127.0.0.1:4321" {
		t.Errorf("second start: got listen %q, %v; want the first one's port", again.Listen, err)
	}
	if again.MaxRunning < 2 || again.Sandboxd == nil {
		t.Errorf("got max_running %d and sandboxd %v, want machines", again.MaxRunning, again.Sandboxd)
	}
	in.conf.Sandboxes.Enabled = false
	if off, err := in.gatewayConfig(); err != nil || off.Sandboxd != nil {
		t.Errorf("sandboxes off: got sandboxd %v, %v", off.Sandboxd, err)
	}
}

func TestGatewayUser(t *testing.T) {
	in := testInstallation(t, nil)
	in.mountd.IDMap = true
	if got := in.gatewayUID(); got != in.conf.GatewayUID {
		t.Errorf("with id-mapped mounts: got uid %d, want its own %d", got, in.conf.GatewayUID)
	}
	in.mountd.IDMap = false
	if got := in.gatewayUID(); got != machineUID {
		t.Errorf("without: got uid %d, want the machines' %d", got, machineUID)
	}
	if c := gatewayCredential(1, 2); c.Groups == nil || len(c.Groups) != 0 || c.NoSetGroups {
		t.Errorf("got %+v, want no supplementary groups", *c)
	}
}

func TestChildEnvironmentHasNoSecrets(t *testing.T) {
	got := childEnvironment([]string{"PATH=/bin", "AWS_SECRET_ACCESS_KEY=x", "BERTH_TOKEN=x", "HOME=/root", "LD_PRELOAD=x"})
	if want := []string{"PATH=/bin", "HOME=/root"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTemplateIsWrittenAnew(t *testing.T) {
	in := testInstallation(t, nil)
	dir := in.state.templateDir()
	stray := filepath.Join(dir, "stray")
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The umask of whoever starts berth does not hide it from the machines.
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	if err := writeTemplate(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(stray); err == nil {
		t.Error("a file that is not of the template is left")
	}
	for name, mode := range map[string]os.FileMode{dir: 0o755, filepath.Join(dir, "README.md"): 0o644} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: got %v, %v; want mode %o", name, info, err, mode)
		}
	}
}

func TestAnnounceJSON(t *testing.T) {
	in := testInstallation(t, nil)
	var out bytes.Buffer
	if err := in.announce(&out, true); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("got %d lines, want one", n)
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"url", "preview_host", "operator_token", "admin_token", "member_token", "api_key", "workspace", "user", "state", "signin_url"} {
		if got[key] == "" {
			t.Errorf("%s is missing", key)
		}
	}
	if link, err := url.Parse(got["signin_url"]); err != nil || link.Host != "berth.localhost:4321" || link.Query().Get("t") == "" {
		t.Errorf("got sign-in link %q, want one to the web page's host", got["signin_url"])
	}
}

// TestAnnounceForPeople: what is shown on a terminal tells where the tokens
// are, and shows none.
func TestAnnounceForPeople(t *testing.T) {
	in := testInstallation(t, nil)
	var out bytes.Buffer
	if err := in.announce(&out, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{in.gateway.URL, "/signin?t=", in.state.credentialsFile(), "tool hello bash", in.state.path} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
	for _, secret := range []string{in.creds.OperatorToken, in.creds.AdminToken, in.creds.MemberToken, in.creds.APIKey, in.secret} {
		if strings.Contains(out.String(), secret) {
			t.Error("a secret is shown")
		}
	}
}

func TestDescribeStore(t *testing.T) {
	lines := describeStore(object.Abilities{PutIfMatch: true, PutIfNoneMatch: true, Copy: true})
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"has conditional PUT: ", "has no conditional DELETE: ", "has no conditional multipart completion: ", "has no metadata: ", "has copy: ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

func TestControl(t *testing.T) {
	in := testInstallation(t, nil)
	if _, err := readControl(in.state.path); err == nil || !strings.Contains(err.Error(), "none runs") {
		t.Errorf("nothing runs: got %v", err)
	}
	if err := in.publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := readControl(in.state.path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Store.Endpoint != "127.0.0.1:1234" || got.Store.Bucket != embeddedBucket || got.Mountd.Token != in.tokens.mountd || got.Sandboxd == nil {
		t.Errorf("got %+v", got)
	}
	for _, name := range []string{controlFile(in.state.path), in.state.memberEnvFile()} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: got %v, %v; want mode 0600", name, info, err)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"signin", "--state", in.state.path}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), in.gateway.App+"/signin?t=") {
		t.Errorf("signin printed %q", out.String())
	}
	if err := run(t.Context(), []string{"signin", "--state", in.state.path, "--user", "a/b"}, &out, io.Discard); err == nil {
		t.Error("signin takes a user that is no id")
	}
}

func TestSignInLinkNamesTheMember(t *testing.T) {
	if _, err := signInLink("no hex", "http://x", "w", "u", time.Now()); err == nil {
		t.Error("a damaged secret makes a link")
	}
}
