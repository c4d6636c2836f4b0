package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"berth"
	"berth/api"
	"berth/mounts"
	"berth/preview"
	"berth/sandbox"
	"berth/sandbox/agent"
)

func TestMachineError(t *testing.T) {
	plain := errors.New("x")
	for _, tt := range []struct{ err, want error }{
		{fmt.Errorf("cannot start: %w", sandbox.ErrBusy), api.ErrLimit},
		{fmt.Errorf("cannot start: %w", sandbox.ErrTerminated), berth.ErrConflict},
		{&agent.Error{Code: agent.CodeTooLarge, Message: "m"}, api.ErrTooLarge},
		{&agent.Error{Code: agent.CodeFull, Message: "m"}, syscall.ENOSPC},
		{&agent.Error{Code: agent.CodeInternal, Message: "m"}, berth.ErrUnavailable},
		{&agent.Error{Code: agent.CodeNotFound, Message: "m"}, fs.ErrNotExist},
		{plain, plain},
		{nil, nil},
	} {
		got := machineError(tt.err)
		if !errors.Is(got, tt.want) || tt.err != nil && !strings.HasPrefix(got.Error(), tt.err.Error()) {
			t.Errorf("machineError(%v) = %v, want it to match %v", tt.err, got, tt.want)
		}
	}
	if err := changesError(fmt.Errorf("cannot read: %w", mounts.ErrReset)); !errors.Is(err, preview.ErrReset) {
		t.Errorf("changesError of a reset: %v", err)
	}
}

func TestGatewayConfig(t *testing.T) {
	conf, err := decodeConfig[gatewayConfig](strings.NewReader(`{"listen":"127.0.0.1:0","preview_host":"gw.localhost",
		"secret":"` + strings.Repeat("ab", 32) + `","mountd":{"socket":"/m","token":"t"},"sandboxd":null,"idle_minutes_member":0.5}`))
	if err != nil || conf.Sandboxd != nil || conf.Mountd.Socket != "/m" {
		t.Fatalf("got %+v, %v", conf, err)
	}
	if secret, err := conf.secretBytes(); err != nil || len(secret) != 32 {
		t.Errorf("the secret has %d bytes, %v", len(secret), err)
	}
	for _, bad := range []string{"", "ab", strings.Repeat("x", 64), strings.Repeat("ab", 33)} {
		if _, err := (gatewayConfig{Secret: bad}).secretBytes(); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("secret %q: %v, want an error", bad, err)
		}
	}
	if _, err := decodeConfig[gatewayConfig](strings.NewReader(`{"listne":"x"}`)); err == nil {
		t.Error("an unknown field is accepted")
	}
}
