package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func newEventsCommand() *cobra.Command {
	var asJSON bool
	var since string
	cmd := &cobra.Command{
		Use:   "events [CHAT]",
		Short: "Show changes of files and states of machines as they come",
		Long: `Show what happens to the caller's files and machines, or to one chat's, until
interrupted. A stream that breaks off is resumed where it was.
` + clientHelp,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := newClient()
			if err != nil {
				return err
			}
			path := "/v1/events"
			if len(args) == 1 {
				path = "/v1/chats/" + url.PathEscape(args[0]) + "/events"
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			f := &follower{client: c, path: path, last: since, out: cmd.OutOrStdout(), json: asJSON}
			if err := f.follow(ctx); ctx.Err() == nil {
				return fmt.Errorf("cannot follow events: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON line for each event: {\"id\",\"event\",\"data\"}")
	cmd.Flags().StringVar(&since, "since", "", "begin after the event with this `ID`")
	return cmd
}

// A follower prints a stream of events.
type follower struct {
	client *client
	path   string
	last   string // the id to go on after
	out    io.Writer
	json   bool
}

// follow prints events until ctx ends, the output fails, or the gateway says
// that there is nothing to follow. A connection that breaks is made again.
func (f *follower) follow(ctx context.Context) error {
	const fastest, slowest = time.Second, 30 * time.Second
	wait := fastest
	for opened := false; ; {
		ok, err := f.stream(ctx)
		var said *problem
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &said) && said.status < 500 && said.status != http.StatusTooManyRequests:
			return err
		case errors.Is(err, errOutput), !opened && !ok:
			return err
		}
		opened = true
		if ok {
			wait = fastest
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, slowest)
	}
}

// errOutput says that the output cannot be written.
var errOutput = errors.New("cannot write output")

// stream prints one connection's events and reports whether it was opened.
func (f *follower) stream(ctx context.Context) (opened bool, err error) {
	headers := []string{"Accept", "text/event-stream"}
	if f.last != "" {
		headers = append(headers, "Last-Event-ID", f.last)
	}
	res, err := f.client.send(ctx, http.MethodGet, f.path, nil, headers...)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	in := bufio.NewScanner(res.Body)
	in.Buffer(nil, 16<<20) // an event holds 500 changes at most
	var name, data string
	for in.Scan() {
		field, value, _ := strings.Cut(in.Text(), ": ")
		switch field {
		case "id":
			f.last = value
		case "event":
			name = value
		case "data":
			data = value
		case "":
			if data != "" && value == "" {
				if err := f.print(name, data); err != nil {
					return true, fmt.Errorf("%w: %w", errOutput, err)
				}
			}
			name, data = "", ""
		}
	}
	return true, errors.Join(in.Err(), io.ErrUnexpectedEOF)
}

func (f *follower) print(name, data string) error {
	if f.json {
		return json.NewEncoder(f.out).Encode(struct {
			ID    string          `json:"id"`
			Event string          `json:"event"`
			Data  json.RawMessage `json:"data"`
		}{f.last, name, json.RawMessage(data)})
	}
	var d struct {
		Changes []struct {
			Time                       time.Time
			Tree, Path, From, Op, Kind string
			Size                       int64
			Calls                      []string
		}
		Chat, Machine, State, Reason string
		Since                        time.Time
	}
	if err := json.Unmarshal([]byte(data), &d); err != nil {
		return fmt.Errorf("cannot read event: %w", err)
	}
	const clock = "15:04:05.000"
	switch name {
	case "machine":
		_, err := fmt.Fprintf(f.out, "%s machine %s of chat %s: %s %s\n", d.Since.Local().Format(clock), d.Machine, d.Chat, d.State, d.Reason)
		return err
	case "reset":
		_, err := fmt.Fprintf(f.out, "%s events were missed (%s)\n", time.Now().Format(clock), d.Reason)
		return err
	}
	for _, c := range d.Changes {
		line := fmt.Sprintf("%s %-6s %s %s", c.Time.Local().Format(clock), c.Op, c.Kind, printable(c.Tree+"/"+c.Path))
		if c.From != "" {
			line += " from " + printable(c.From)
		}
		if c.Kind == "file" && c.Op != "remove" {
			line += fmt.Sprintf(" (%d bytes)", c.Size)
		}
		if len(c.Calls) > 0 {
			line += " during " + strings.Join(c.Calls, ", ")
		}
		if _, err := fmt.Fprintln(f.out, line); err != nil {
			return err
		}
	}
	return nil
}

// printable quotes a name that a terminal could take for more than text.
func printable(name string) string {
	quoted := fmt.Sprintf("%q", name)
	if quoted == `"`+name+`"` {
		return name
	}
	return quoted
}
