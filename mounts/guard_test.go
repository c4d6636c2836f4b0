package mounts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTokenIsNeeded(t *testing.T) {
	in := newInstallation(t)
	for _, token := range []string{"", "wrong", testToken + "x", testToken[:5]} {
		c := NewClient(in.socket, token)
		if _, err := c.NewSlot(t.Context()); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("token %q: got %v, want fs.ErrPermission", token, err)
		}
		c.Close()
	}
	err := (&Server{}).Serve(t.Context(), in.socket+"2", func() error { return nil })
	if !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("Serve without a token: got %v, want fs.ErrInvalid", err)
	}
}

// TestPeerIsChecked connects as other users would who got hold of the socket.
func TestPeerIsChecked(t *testing.T) {
	in := newInstallation(t)
	var st unix.Stat_t
	if err := unix.Stat(in.socket, &st); err != nil || st.Mode&0o777 != 0o600 || st.Uid != gatewayUID {
		t.Errorf("socket: got mode %o of %d (%v), want 600 of %d", st.Mode&0o777, st.Uid, err, gatewayUID)
	}
	if err := errors.Join(os.Chmod(in.socket, 0o666), os.Chmod(filepath.Dir(in.socket), 0o711),
		os.Chmod(filepath.Dir(filepath.Dir(in.socket)), 0o711)); err != nil {
		t.Fatal(err)
	}
	for uid, served := range map[int]bool{0: true, gatewayUID: true, machineUID: false, 65534: false} {
		cmd := rerun(roleDial, in.socket)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
		err := cmd.Run()
		if (err == nil) != served {
			t.Errorf("user %d: got %v, want served %v", uid, err, served)
		}
	}
}

// dialOnce asks for a slot on a socket.
func dialOnce(socket string) error {
	_, err := NewClient(socket, testToken).Slots(context.Background())
	return err
}

// rawRequest sends bytes as a request's body.
func rawRequest(t *testing.T, in *installation, path string, body io.Reader) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://mountd"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	resp, err := in.client.http.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	return resp.StatusCode, string(data)
}

func TestMalformedRequests(t *testing.T) {
	in := newInstallation(t)
	for _, tc := range []struct {
		path, body string
		status     int
	}{
		{pathSlotsNew, "", 400},
		{pathSlotsNew, "nonsense", 400},
		{pathSlotsNew, "{} {}", 400},
		{pathSlotsNew, `{"x":1}`, 400},
		{pathSlotsNew, "[]", 400},
		{pathSlotsRelease, `{"slot":"../x"}`, 400},
		{pathSlotsRelease, `{"slot":1}`, 400},
		{pathSlotsMount, `{"slot":"s1","view":{"home":"/etc"}}`, 400},
		{pathTreesAttach, `{"tree":"../../etc"}`, 400},
		{pathTreesAttach, `{"tree":"acme/members/ann/x"}`, 400},
		{pathTreesRemove, `{"tree":""}`, 400},
		{pathTreesFlush, `{"tree":"/"}`, 400},
		{pathCheckpoint, `{"trees":[]}`, 400},
		{pathCheckpoint, `{"trees":["acme/shared","acme"]}`, 400},
		{pathBefore, `{"tree":"acme/shared","path":"../x","checkpoint":1}`, 400},
		{pathBefore, `{"tree":"acme/shared","path":"x","checkpoint":-1}`, 400},
		{pathVersions, `{"tree":"acme/shared","path":""}`, 400},
		{pathVersion, `{"tree":"acme/shared","path":"a/../b","version":"x"}`, 400},
		{pathRestore, `{"tree":"acme","path":"a","version":"x"}`, 400},
		{pathDeleted, `{"tree":"acme/shared","path":"/"}`, 400},
		{pathSince, `{"tree":"acme/shared"}`, 410},
		{pathChanges, `{"epoch":"e9","since":1}`, 410},
		{pathRecordsPut, `{"key":"a","version":"","value":1} x`, 400},
		{"/v1/nothing", `{}`, 404},
	} {
		status, body := rawRequest(t, in, tc.path, strings.NewReader(tc.body))
		if status != tc.status {
			t.Errorf("%s %s: got status %d %s, want %d", tc.path, tc.body, status, body, tc.status)
		}
	}
	status, _ := rawRequest(t, in, pathRecordsPut, io.LimitReader(zeros{}, 1<<30))
	if status != http.StatusBadRequest {
		t.Errorf("a body of 1 GiB: got status %d, want 400", status)
	}
	if status, _ := rawRequest(t, in, pathStatus, bytes.NewReader([]byte("{}"))); status != 200 {
		t.Errorf("afterwards: got status %d, want 200", status)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A caller that sends nothing more does not hold a request open for ever, and
// Serve ends with one open.
func TestServeEndsWithOpenConnections(t *testing.T) {
	in := newInstallation(t)
	conn, err := net.Dial("unix", in.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", pathStatus, testToken)
	s, err := in.client.Changes(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
}
