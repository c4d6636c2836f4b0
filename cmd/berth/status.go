package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"berth/fusefs"
	"berth/mounts"
	"berth/sandbox"
)

// statusLimit bounds how long a status may take: what does not answer is said
// to be away.
const statusLimit = 10 * time.Second

// clockSkew is how far the clocks may differ, in seconds.
const clockSkew = 5

func newStatusCommand() *cobra.Command {
	var state string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is not in the bucket yet, the cache, and the machines",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), statusLimit)
			defer cancel()
			report, err := readStatus(ctx, state)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(report)
			}
			return report.print(cmd.OutOrStdout(), time.Now())
		},
	}
	cmd.Flags().StringVar(&state, "state", defaultState, "the `DIR` of the installation, or of a `berth mount`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON line")
	return cmd
}

// A statusReport is what `berth status --json` prints.
type statusReport struct {
	State      string        `json:"state"`
	PID        int           `json:"pid"`
	URL        string        `json:"url,omitempty"`
	Store      storePlace    `json:"store"`
	FileSystem fusefs.Status `json:"file_system"`
	Machines   *machineCount `json:"machines,omitempty"` // nil: there are no machines here
}

type machineCount struct {
	Running int    `json:"running"`         // with a chat
	Warm    int    `json:"warm"`            // started, waiting for one
	Error   string `json:"error,omitempty"` // why they cannot be counted
}

func readStatus(ctx context.Context, state string) (statusReport, error) {
	ctl, err := readControl(state)
	if err != nil {
		return statusReport{}, err
	}
	report := statusReport{State: state, PID: ctl.PID, URL: ctl.URL, Store: ctl.Store}
	client := mounts.NewClient(ctl.Mountd.Socket, ctl.Mountd.Token)
	defer client.Close()
	doc, err := client.Status(ctx)
	if err != nil {
		return report, fmt.Errorf("cannot read status: %w", err)
	}
	if err := json.Unmarshal(doc, &report); err != nil {
		return report, fmt.Errorf("cannot read status: %w", err)
	}
	if ctl.Sandboxd != nil {
		report.Machines = countMachines(ctx, client, *ctl.Sandboxd)
	}
	return report, nil
}

// countMachines tells containers with a view from those that wait for one. The
// file system's status is worth showing without it: an error is part of it.
func countMachines(ctx context.Context, client *mounts.Client, sandboxd socketConf) *machineCount {
	slots, err := client.SlotInfos(ctx)
	if err != nil {
		return &machineCount{Error: err.Error()}
	}
	provider := sandbox.NewClient(sandboxd.Socket, sandboxd.Token)
	defer provider.Close()
	containers, err := provider.List(ctx)
	if err != nil {
		return &machineCount{Error: err.Error()}
	}
	claimed := make(map[string]bool)
	for _, s := range slots {
		claimed[string(s.Slot)] = s.View != nil
	}
	var count machineCount
	for _, c := range containers {
		switch {
		case !c.Running:
		case claimed[string(c.Slot)]:
			count.Running++
		default:
			count.Warm++
		}
	}
	return &count
}

func (r statusReport) print(out io.Writer, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	line("state", "%s, process %d", r.State, r.PID)
	if r.URL != "" {
		line("address", "%s", r.URL)
	}
	line("store", "%s, bucket %s", r.Store.URL, r.Store.Bucket)
	f := r.FileSystem
	switch {
	case f.Dirty+f.Deletes+f.Renames == 0:
		line("pending", "nothing: all that was closed is in the bucket")
	default:
		line("pending", "%d files (%s), %d deletes, %d directory renames; %d uploads run", f.Dirty, size(f.DirtyBytes), f.Deletes, f.Renames, f.Uploads)
	}
	if !f.Oldest.IsZero() {
		line("", "the oldest waits for %v", now.Sub(f.Oldest).Round(time.Second))
	}
	if !f.StoreAway.IsZero() {
		line("store away", "for %v: it is asked each second, and all goes on when it answers", now.Sub(f.StoreAway).Round(time.Second))
	}
	if skew := f.SkewSeconds; skew > clockSkew || skew < -clockSkew {
		line("clock", "the store's is %+.0f s from ours: the later of two writes can be mistaken; set this machine's clock", skew)
	}
	if f.StoreError != "" {
		line("store error", "%v ago: %s", now.Sub(f.StoreErrAt).Round(time.Second), f.StoreError)
	}
	line("open", "%d files", f.Open)
	line("cache", "%s, passthrough %s", size(f.CacheBytes), onOff(f.Passthrough))
	for _, t := range f.Trees {
		if t.Full {
			line("full", "%s, with %s in %d files: remove some or raise its quota", cmp.Or(t.Tree, "the bucket"), size(t.Used.Bytes), t.Used.Files)
		}
	}
	if f.Hidden > 0 {
		line("hidden", "%d keys of the bucket that no path can show", f.Hidden)
	}
	switch m := r.Machines; {
	case m == nil:
	case m.Error != "":
		line("machines", "cannot be counted: %s", m.Error)
	default:
		line("machines", "%d running, %d warm", m.Running, m.Warm)
	}
	return w.Flush()
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// size writes a number of bytes for a person.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d bytes", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}
