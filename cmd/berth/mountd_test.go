package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth"
	"berth/fusefs/object"
	"berth/mounts"
)

// mountdChildEnv makes this test binary be `berth mountd`.
const mountdChildEnv = "BERTH_TEST_MOUNTD_CHILD"

// TestMountdChild is the child of the tests below; by itself it does nothing.
func TestMountdChild(t *testing.T) {
	if os.Getenv(mountdChildEnv) == "" {
		return
	}
	cmd := newMountdCommand()
	cmd.SetArgs(nil)
	cmd.SilenceUsage = true
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A mountdChild is a mountd in a process of its own.
type mountdChild struct {
	*mounts.Client
	conf   mountdConfig
	cmd    *exec.Cmd
	stderr bytes.Buffer
	readyR *os.File
	ready  mountdReady
	waited chan error
}

// mountdState makes a configuration on a store that runs.
func mountdState(t *testing.T) (mountdConfig, *storeChild, storeConfig) {
	t.Helper()
	sc := testStoreConfig(t)
	store := startStore(t, sc)
	state := t.TempDir()
	t.Cleanup(func() {
		if n, err := clearMounts(state); n > 0 || err != nil {
			t.Errorf("%d mounts were left, %v", n, err)
		}
	})
	return mountdConfig{
		State:  state,
		Store:  mountdStore{URL: store.url, Bucket: sc.Bucket, AccessKey: sc.AccessKey, SecretKey: sc.SecretKey, Exclusive: true},
		Socket: filepath.Join(state, "m.sock"), SocketToken: "token", GatewayUID: 4711, MachineUID: 1000, MachineGID: 1000,
	}, store, sc
}

// startMountd starts one and waits until it is ready, or has ended.
func startMountd(t *testing.T, conf mountdConfig) *mountdChild {
	t.Helper()
	c := launchMountd(t, conf)
	line, err := io.ReadAll(c.readyR)
	if err != nil {
		t.Fatal(err)
	}
	if len(line) > 0 {
		if err := json.Unmarshal(line, &c.ready); err != nil {
			t.Fatalf("ready line %q: %v", line, err)
		}
	}
	return c
}

func launchMountd(t *testing.T, conf mountdConfig) *mountdChild {
	t.Helper()
	doc, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	confR, confW, err1 := os.Pipe()
	readyR, readyW, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	c := &mountdChild{Client: mounts.NewClient(conf.Socket, conf.SocketToken), conf: conf, readyR: readyR, waited: make(chan error, 1)}
	c.cmd = exec.Command(os.Args[0], "-test.run=^TestMountdChild$")
	c.cmd.Env = append(os.Environ(), mountdChildEnv+"=1")
	c.cmd.ExtraFiles = []*os.File{confR, readyW}
	c.cmd.Stderr = &c.stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		c.waited <- c.cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		c.Close()
		c.cmd.Process.Kill() // no error counts: most are over by then
		<-ended
		readyR.Close()
	})
	confR.Close()
	readyW.Close()
	_, err = confW.Write(doc)
	if err := errors.Join(err, confW.Close()); err != nil {
		t.Fatal(err)
	}
	return c
}

// end sends the signal and waits for the process.
func (c *mountdChild) end(t *testing.T, sig os.Signal) error {
	t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-c.waited:
		return err
	case <-time.After(60 * time.Second):
		t.Fatal("mountd does not end")
		return nil
	}
}

// stopCleanly stops it as when berth stops: without a slot.
func (c *mountdChild) stopCleanly(t *testing.T) {
	t.Helper()
	slots, err := c.Slots(t.Context())
	for _, slot := range slots {
		err = errors.Join(err, c.ReleaseSlot(t.Context(), slot))
	}
	if err != nil {
		t.Error(err)
	}
	if err := c.end(t, syscall.SIGTERM); err != nil {
		t.Errorf("stop: %v\n%s", err, c.stderr.String())
	}
	if left, err := mountsBelow(c.conf.State); err != nil || len(left) > 0 {
		t.Errorf("mounts after the stop: %v, %v; want none", left, err)
	}
}

// claim makes a slot with a member's view and returns the path of the member's
// disk in it.
func (c *mountdChild) claim(t *testing.T) string {
	t.Helper()
	slot, err := c.NewSlot(t.Context())
	if err == nil {
		err = c.MountView(t.Context(), slot, berth.View{Workspace: "acme", Machine: "i1", Chat: "c1", User: "ann", Experts: []berth.ID{"profy"}})
	}
	if err != nil {
		t.Fatalf("claim: %v\n%s", err, c.stderr.String())
	}
	return filepath.Join(c.conf.State, "slots", string(slot), "home/user/workspace")
}

func TestMountdServesAndStops(t *testing.T) {
	conf, _, sc := mountdState(t)
	c := startMountd(t, conf)
	if !c.ready.Ready || !c.ready.Abilities.PutIfMatch {
		t.Fatalf("ready: got %+v\n%s", c.ready, c.stderr.String())
	}
	disk := c.claim(t)
	if err := os.WriteFile(filepath.Join(disk, "f"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(conf.State, "view/acme/members/ann/f"))
	if string(data) != "hello" || err != nil {
		t.Errorf("through the view: got %q, %v", data, err)
	}
	version, err := c.Put(t.Context(), berth.Record{Key: "workspaces/acme", Value: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ls", filepath.Join(conf.State, "view/.berth")).CombinedOutput(); err == nil {
		t.Errorf("berth's own objects are shown: %s", out)
	}
	c.stopCleanly(t)

	s := openStore(t, conf.Store.URL, sc)
	for _, key := range []string{"acme/members/ann/f", ".berth/records/workspaces/acme.json"} {
		if _, err := s.Head(t.Context(), key); err != nil {
			t.Errorf("object %s: %v", key, err)
		}
	}
	c = startMountd(t, conf)
	if rec, err := c.Get(t.Context(), "workspaces/acme"); err != nil || rec.Version != version {
		t.Errorf("record after a restart: got %+v, %v", rec, err)
	}
	if slots, err := c.Slots(t.Context()); err != nil || len(slots) != 0 {
		t.Errorf("slots after a stop: got %v, %v; want none", slots, err)
	}
	c.stopCleanly(t)
}

// TestMountdGoesOn kills and restarts it while a slot is in use.
func TestMountdGoesOn(t *testing.T) {
	conf, _, sc := mountdState(t)
	c := startMountd(t, conf)
	disk := c.claim(t)
	for i, sig := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		name := fmt.Sprint("f", i)
		if err := os.WriteFile(filepath.Join(disk, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := c.end(t, sig); sig == syscall.SIGTERM && err != nil {
			t.Errorf("stop: %v\n%s", err, c.stderr.String())
		}
		if _, err := os.ReadDir(disk); !errors.Is(err, syscall.ENOTCONN) {
			t.Errorf("after %v the slot answers %v, want ENOTCONN", sig, err)
		}
		c = startMountd(t, conf)
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("after %v the files were back after %v, want 3 s at most", sig, took)
		}
		if data, err := os.ReadFile(filepath.Join(disk, name)); string(data) != name || err != nil {
			t.Fatalf("after end %d: got %q, %v\n%s", i, data, err, c.stderr.String())
		}
	}
	if err := c.Flush(t.Context(), "acme/members/ann"); err != nil {
		t.Errorf("Flush: %v", err)
	}
	s := openStore(t, conf.Store.URL, sc)
	page, err := s.List(t.Context(), object.ListOptions{Prefix: "acme/members/ann/f"})
	if err != nil || len(page.Objects) != 3 {
		t.Errorf("objects: got %v, %v; want 3", page.Objects, err)
	}
	c.stopCleanly(t)
}

func TestMountdStartsWhileTheStoreIsAway(t *testing.T) {
	conf, store, _ := mountdState(t)
	c := startMountd(t, conf)
	disk := c.claim(t)
	if err := os.WriteFile(filepath.Join(disk, "f"), []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), berth.Record{Key: "members/acme/ann", Value: json.RawMessage(`1`)}); err != nil {
		t.Fatal(err)
	}
	if err := store.stop(t, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.end(t, syscall.SIGKILL)
	c = startMountd(t, conf)
	if data, err := os.ReadFile(filepath.Join(disk, "f")); string(data) != "kept" || err != nil {
		t.Errorf("cached file: got %q, %v\n%s", data, err, c.stderr.String())
	}
	if rec, err := c.Get(t.Context(), "members/acme/ann"); err != nil || string(rec.Value) != "1" {
		t.Errorf("record: got %+v, %v", rec, err)
	}
	if _, err := c.Put(t.Context(), berth.Record{Key: "x", Value: json.RawMessage(`1`)}); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("change of a record: got %v, want ErrUnavailable", err)
	}
	c.end(t, syscall.SIGKILL)
	if _, err := clearMounts(conf.State); err != nil {
		t.Error(err)
	}
}

// TestMountdBringsFilesBackWhileTheStoreHangs restarts it under a slot in use
// while the store accepts and never answers.
func TestMountdBringsFilesBackWhileTheStoreHangs(t *testing.T) {
	conf, _, _ := mountdState(t)
	c := startMountd(t, conf)
	disk := c.claim(t)
	if err := os.WriteFile(filepath.Join(disk, "f"), []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	hung, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts: what connects waits
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	healthy := conf
	conf.Store.URL = "http://" + hung.Addr().String()
	begun := time.Now()
	c.end(t, syscall.SIGTERM)
	c = launchMountd(t, conf)
	for {
		if data, err := os.ReadFile(filepath.Join(disk, "f")); err == nil && string(data) == "kept" {
			break
		}
		if time.Since(begun) > 3*time.Second {
			t.Fatalf("the files are not back after 3 s\n%s", c.stderr.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := os.WriteFile(filepath.Join(disk, "g"), nil, 0o644); err != nil {
		t.Errorf("write: %v", err)
	}
	if err := c.end(t, syscall.SIGTERM); err == nil {
		t.Error("a stop before it was ready: got no error")
	}
	c = startMountd(t, healthy)
	if _, err := os.Stat(filepath.Join(disk, "g")); err != nil {
		t.Errorf("with the store: %v\n%s", err, c.stderr.String())
	}
	c.stopCleanly(t)
}

func TestMountdRefusesBadConfiguration(t *testing.T) {
	for what, change := range map[string]func(*mountdConfig){
		"state":            func(c *mountdConfig) { c.State = "" },
		"socket_token":     func(c *mountdConfig) { c.SocketToken = "" },
		"above zero":       func(c *mountdConfig) { c.GatewayUID = 0 },
		"store.bucket":     func(c *mountdConfig) { c.Store.Bucket = "" },
		"scheme, host":     func(c *mountdConfig) { c.Store.URL = "http://127.0.0.1:1/path?x" },
		"cannot probe":     func(c *mountdConfig) { c.Store.URL = "http://127.0.0.1:1" },
		"cannot open temp": func(c *mountdConfig) { c.TemplateDir = "/nonexistent" },
	} {
		t.Run(what, func(t *testing.T) {
			state := t.TempDir()
			conf := mountdConfig{State: state, Store: mountdStore{URL: "http://127.0.0.1:1", Bucket: "bucket", AccessKey: "a", SecretKey: "s"},
				Socket: filepath.Join(state, "m.sock"), SocketToken: "t", GatewayUID: 4711, MachineUID: 1000, MachineGID: 1000}
			change(&conf)
			c := startMountd(t, conf)
			var exit *exec.ExitError
			if err := <-c.waited; !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(c.stderr.String(), what) {
				t.Errorf("got %v and %q, want exit code 1 and %q", err, c.stderr.String(), what)
			}
			if left, err := mountsBelow(state); err != nil || len(left) > 0 {
				t.Errorf("mounts are left: %v, %v", left, err)
			}
		})
	}
}
