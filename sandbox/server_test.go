package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth"
	"berth/sandbox"
	"berth/sandbox/providertest"
)

// serve offers a provider on a socket in dir and returns the socket.
func serve(t *testing.T, p sandbox.Provider, gatewayUID int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandboxd-") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o755)
	socket := filepath.Join(dir, "s")
	s := &sandbox.Server{Provider: p, Token: "secret", GatewayUID: gatewayUID, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Serve(ctx, socket, func() error { close(ready); return nil }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return socket
}

func TestClientIsAProvider(t *testing.T) {
	providertest.Suite(t, func(t *testing.T) providertest.Harness {
		w := newWorld(t)
		c := sandbox.NewClient(serve(t, w.provider, os.Getuid()), "secret")
		t.Cleanup(c.Close)
		return harness(w, c)
	})
}

func TestMemoryIsAProvider(t *testing.T) {
	providertest.Suite(t, func(t *testing.T) providertest.Harness {
		w := newWorld(t)
		return harness(w, w.provider)
	})
}

func harness(w *world, p sandbox.Provider) providertest.Harness {
	return providertest.Harness{
		Provider: p, Slots: w.mounts, SlotsDir: w.slotsDir,
		Kill: func(c sandbox.Container) { w.provider.Kill(c.Slot) },
	}
}

func TestClientWithoutServer(t *testing.T) {
	c := sandbox.NewClient(filepath.Join(t.TempDir(), "none"), "secret")
	defer c.Close()
	if _, err := c.List(t.Context()); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("list: %v, want unavailable", err)
	}
}

func TestSocketIsTheGateways(t *testing.T) {
	w := newWorld(t)
	socket := serve(t, w.provider, os.Getuid())
	for _, token := range []string{"", "secre", "secret2", "Secret"} {
		c := sandbox.NewClient(socket, token)
		if _, err := c.List(t.Context()); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("token %q: %v, want no permission", token, err)
		}
		c.Close()
	}
	if os.Getuid() != 0 {
		t.Fatal("the rest of this test needs root, to be another user")
	}
	// Even when the socket's mode lets another user in.
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		uid  uint32
		want string
	}{{4242, "this socket is the gateway's"}, {0, "ok"}} {
		cmd := exec.Command("curl", "-s", "--unix-socket", socket, "-H", "Authorization: Bearer secret", "http://x/v1/containers")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.uid, Gid: c.uid}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("curl: %v: %s", err, out)
		}
		got := "ok"
		if strings.Contains(string(out), "message") {
			got = string(out)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("uid %d: %s, want %s", c.uid, out, c.want)
		}
	}
}

// recorder notes the slots that a provider is asked for.
type recorder struct{ slots []berth.ID }

func (r *recorder) note(slot berth.ID) error {
	r.slots = append(r.slots, slot)
	return fs.ErrNotExist
}

func (r *recorder) Info(context.Context) (sandbox.Info, error)        { return sandbox.Info{}, nil }
func (r *recorder) List(context.Context) ([]sandbox.Container, error) { return nil, nil }
func (r *recorder) Create(_ context.Context, s berth.ID) (sandbox.Container, error) {
	return sandbox.Container{}, r.note(s)
}
func (r *recorder) Stats(_ context.Context, s berth.ID) (sandbox.Stats, error) {
	return sandbox.Stats{}, r.note(s)
}
func (r *recorder) Destroy(_ context.Context, s berth.ID) error { return r.note(s) }

// FuzzSocket asks anything with the right token: whatever reaches the provider
// is an id.
func FuzzSocket(f *testing.F) {
	f.Add("POST", "/v1/containers", `{"slot":"s1"}`)
	f.Add("POST", "/v1/containers", `{"slot":"../../etc","image":"x","privileged":true}`)
	f.Add("POST", "/v1/containers", `{"slot":"s1","image":"x"}`)
	f.Add("POST", "/v1/containers", `{"slot":["s1"]}`+strings.Repeat(" ", 5000))
	f.Add("DELETE", "/v1/containers/..%2f..%2fetc", "")
	f.Add("DELETE", "/v1/containers/s1%00", "")
	f.Add("GET", "/v1/containers/.hidden/stats", "")
	f.Add("PUT", "/v1/containers", "")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r := &recorder{}
		req, err := http.NewRequest(method, "http://sandboxd/", strings.NewReader(body))
		if err != nil {
			return
		}
		if req.URL, err = req.URL.Parse(path); err != nil {
			return
		}
		req.Header.Set("Authorization", "Bearer secret")
		s := &sandbox.Server{Provider: r, Token: "secret", Logger: slog.New(slog.DiscardHandler)}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, req.WithContext(sandbox.WithPeerUID(req.Context(), 0)))
		for _, slot := range r.slots {
			if _, err := berth.ParseID("slot", string(slot)); err != nil {
				t.Errorf("%s %q %q reached the provider: %v", method, path, body, err)
			}
		}
		if w.Code >= 500 {
			t.Errorf("%s %q %q: status %d: %s", method, path, body, w.Code, w.Body)
		}
	})
}

func TestRequestsBeyondIDs(t *testing.T) {
	w := newWorld(t)
	socket := serve(t, w.provider, os.Getuid())
	c := sandbox.NewClient(socket, "secret")
	defer c.Close()
	for _, bad := range []berth.ID{"", "..", "a/b", "a b", "é", berth.ID(strings.Repeat("x", 129)), "a\x00"} {
		if _, err := c.Create(t.Context(), bad); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("create on %q: %v, want invalid", bad, err)
		}
	}
	out, err := exec.Command("curl", "-s", "--unix-socket", socket, "-H", "Authorization: Bearer secret",
		"-d", fmt.Sprintf(`{"slot":"s1","image":%q}`, "evil"), "http://x/v1/containers").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"invalid"`) {
		t.Errorf("a request with an image: %s, %v", out, err)
	}
}
