package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"berth/fusefs"
)

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1536 << 10: "1.5 MiB", 1 << 62: "4.0 EiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d): got %q, want %q", n, got, want)
		}
	}
}

func TestStatusForPeople(t *testing.T) {
	now := time.Now()
	idle := statusReport{State: "/s", PID: 7, Store: storePlace{URL: "http://x", Bucket: "b"}}
	busy := idle
	busy.FileSystem = fusefs.Status{
		Dirty: 3, DirtyBytes: 2048, Deletes: 1, Uploads: 2, Oldest: now.Add(-time.Minute),
		StoreError: "it is away", StoreErrAt: now.Add(-time.Second), Hidden: 4, Passthrough: true,
		Trees: []fusefs.TreeStatus{{Tree: "w/shared", Used: fusefs.Quota{Bytes: 1 << 30, Files: 9}, Full: true}, {Tree: "w/members/me"}},
	}
	busy.Machines = &machineCount{Running: 5, Warm: 6}
	broken := idle
	broken.Machines = &machineCount{Error: "no sandboxd"}
	tests := []struct {
		name   string
		report statusReport
		want   []string
		not    []string
	}{
		{"idle", idle, []string{"nothing", "passthrough off", "process 7"}, []string{"machines", "store error", "hidden"}},
		{"busy", busy, []string{"3 files (2.0 KiB)", "1 deletes", "1m0s", "it is away", "4 keys", "5 running, 6 warm", "passthrough on", "w/shared, with 1.0 GiB in 9 files"}, []string{"nothing", "w/members/me"}},
		{"machines unknown", broken, []string{"no sandboxd"}, []string{"0 running"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := tt.report.print(&out, now); err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing in:\n%s", want, out.String())
				}
			}
			for _, not := range tt.not {
				if strings.Contains(out.String(), not) {
					t.Errorf("%q is in:\n%s", not, out.String())
				}
			}
		})
	}
}

// TestCommandsWithoutABerth: what needs a running berth says that none runs,
// and a wrong command line is told apart.
func TestCommandsWithoutABerth(t *testing.T) {
	state := t.TempDir()
	tests := []struct {
		args []string
		code int
		is   error
	}{
		{[]string{"status", "--state", state}, 1, fs.ErrNotExist},
		{[]string{"flush", "--state", state}, 1, fs.ErrNotExist},
		{[]string{"flush", "--state", state, "main/members/me"}, 1, fs.ErrNotExist},
		{[]string{"flush", "--state", state, "members"}, 2, fs.ErrInvalid},
		{[]string{"flush", "a", "b"}, 2, nil},
		{[]string{"signin", "--state", state}, 1, fs.ErrNotExist},
		{[]string{"status", "--nonsense"}, 2, nil},
		{[]string{"doctor", "--sandboxes=maybe"}, 2, fs.ErrInvalid},
	}
	for _, tt := range tests {
		var stderr bytes.Buffer
		err := run(t.Context(), tt.args, io.Discard, io.Discard)
		if code := exitCode(&stderr, err); code != tt.code {
			t.Errorf("%v: got exit code %d (%v), want %d", tt.args, code, err, tt.code)
		}
		if tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%v: got %v, want %v", tt.args, err, tt.is)
		}
		if stderr.Len() == 0 {
			t.Errorf("%v: nothing is said", tt.args)
		}
	}
}

// TestEveryCommandIsThere holds the table of the README against the program.
func TestEveryCommandIsThere(t *testing.T) {
	there := make(map[string]bool)
	for _, c := range newRootCommand().Commands() {
		there[c.Name()] = true
		if c.Short == "" {
			t.Errorf("%s has no help", c.Name())
		}
	}
	for _, name := range strings.Fields("up doctor status flush versions restore signin mount tool events files keys store mountd guard sandboxd gateway") {
		if !there[name] {
			t.Errorf("there is no command %s", name)
		}
	}
}
