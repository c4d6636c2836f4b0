package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// What `berth up` and the processes it starts agree on. A child reads one JSON
// document, its configuration with its secrets, from descriptor 3: nothing of
// it is ever seen in an argument list or in the environment. When it serves it
// writes one JSON line to descriptor 4 and closes it; a descriptor that closes
// without a line means that the child could not start. Logs go to stderr, one
// JSON object a line. SIGTERM asks it to stop cleanly, which ends in exit code 0.
const (
	configFD = 3
	readyFD  = 4

	// maxConfig bounds the configuration, which is a few hundred bytes.
	maxConfig = 1 << 20
)

// readConfig reads the child's configuration from descriptor 3 and closes it.
// The document must be a single JSON value of T without unknown fields. It is
// called once, before anything else is opened.
func readConfig[T any]() (T, error) {
	// Neither descriptor may reach the processes that this child starts.
	syscall.CloseOnExec(configFD)
	syscall.CloseOnExec(readyFD)
	f := os.NewFile(configFD, "configuration")
	defer f.Close()
	return decodeConfig[T](f)
}

// hideMemory keeps other processes of the same user, which on older kernels is
// the machines' own, from reading this one's memory, where the secrets are.
func hideMemory() {
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // cannot fail with these arguments
}

// decodeConfig reads one JSON document of type T, strictly.
func decodeConfig[T any](r io.Reader) (T, error) {
	var conf, none T
	data, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	switch {
	case err != nil:
		return none, fmt.Errorf("cannot read configuration from file descriptor %d (`berth up` starts this command): %w", configFD, err)
	case len(data) > maxConfig:
		return none, fmt.Errorf("cannot read configuration: more than %d bytes: %w", maxConfig, fs.ErrInvalid)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&conf); err != nil {
		return none, fmt.Errorf("cannot decode configuration: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return none, fmt.Errorf("cannot decode configuration: more follows after the JSON document: %w", fs.ErrInvalid)
	}
	return conf, nil
}

// announceReady writes v as one JSON line to descriptor 4 and closes it. Of v
// the field "ready" is true; the rest is what the parent must know. It is
// called once, when the child serves.
func announceReady(v any) error {
	f := os.NewFile(readyFD, "ready")
	if err := json.NewEncoder(f).Encode(v); err != nil {
		f.Close()
		return fmt.Errorf("cannot announce that the process is ready: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("cannot announce that the process is ready: %w", err)
	}
	return nil
}

// childContext returns a context that ends at SIGTERM, and the function that
// gives the signals back. SIGINT has no effect: a terminal sends it to the whole
// process group, but the order in which the children stop is up's affair.
func childContext(parent context.Context) (context.Context, context.CancelFunc) {
	interrupts := make(chan os.Signal, 1) // never read: the signal is only kept from ending the process
	signal.Notify(interrupts, os.Interrupt)
	ctx, stop := signal.NotifyContext(parent, syscall.SIGTERM)
	return ctx, func() {
		stop()
		signal.Stop(interrupts)
	}
}

// childLogger writes JSON lines to stderr, which `berth up` collects.
func childLogger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
}
