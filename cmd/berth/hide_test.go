package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// testHideEnv makes this test binary, started again, wait to be looked at; its
// memory is hidden if the value says so.
const testHideEnv = "BERTH_TEST_HIDE"

func TestBeLookedAt(t *testing.T) {
	how := os.Getenv(testHideEnv)
	if how == "" {
		return
	}
	if how == "hide" {
		hideMemory()
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
}

// TestHideMemory: a process of the same user can look into one that did not hide,
// and cannot look into one that did.
func TestHideMemory(t *testing.T) {
	for how, readable := range map[string]bool{"show": true, "hide": false} {
		as := &syscall.SysProcAttr{Credential: gatewayCredential(64180, 64180)}
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestBeLookedAt$")
		cmd.Env = append(os.Environ(), testHideEnv+"="+how)
		cmd.SysProcAttr = as
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
			t.Error(err)
		}
		look := exec.Command("head", "-c1", fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
		look.SysProcAttr = as
		text, err := look.CombinedOutput()
		if got := err == nil && len(text) == 1; got != readable {
			t.Errorf("%s: readable is %t, want %t: %s, %v", how, got, readable, text, err)
		}
		in.Close()
		io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
