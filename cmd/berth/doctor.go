package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// A level says how bad a finding is.
type level string

const (
	levelOK   level = "ok"
	levelWarn level = "warn" // berth works, with less than it could
	levelFail level = "fail" // berth does not start, or machines do not
)

// A finding is what doctor says of one part of the host.
type finding struct {
	Name   string `json:"name"`
	Level  level  `json:"level"`
	Found  string `json:"found"`            // what is there
	Means  string `json:"means"`            // what that means for berth
	Remedy string `json:"remedy,omitempty"` // what to do about it, for warn and fail
}

func ok(found, means string) finding { return finding{Level: levelOK, Found: found, Means: means} }
func warn(found, means, remedy string) finding {
	return finding{Level: levelWarn, Found: found, Means: means, Remedy: remedy}
}
func fail(found, means, remedy string) finding {
	return finding{Level: levelFail, Found: found, Means: means, Remedy: remedy}
}

// A check looks at one part of the host.
type check struct {
	name string
	run  func(ctx context.Context, conf *upConfig) finding
}

func newDoctorCommand() *cobra.Command {
	var flags upFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this host can run berth, and say what is missing",
		Long: `Check whether this host can run berth with the given configuration. Each finding
says what is there, what it means, and what to do about it: ok; warn, where berth
works with less than it could; fail, where it does not work.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := flags.load(cmd)
			if err != nil {
				return err
			}
			return examine(cmd.Context(), conf, asJSON, cmd.OutOrStdout())
		},
	}
	flags.bind(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the findings as JSON")
	return cmd
}

// checks are all that doctor looks at, in the order of the output.
func checks(conf *upConfig) []check {
	list := []check{
		{"rights", checkRights},
		{"FUSE device", checkFuse},
		{"passthrough", checkPassthrough},
		{"id-mapped mounts", checkIDMap},
		{"mount propagation", checkPropagation},
		{"state directory", checkStateDir},
		{"disk space", checkDisk},
		{"memory", checkMemory},
		{"inotify", checkInotify},
		{"open files", checkOpenFiles},
		{"store", checkStoreAnswers},
	}
	if conf.Sandboxes.Enabled {
		list = append(list,
			check{"docker engine", checkEngine},
			check{"seccomp", checkSeccomp},
			check{"machine limits", checkLimits},
			check{"machine runtime", checkRuntime},
			check{"machine image", checkImage},
		)
	}
	return list
}

// examine runs all checks and prints them; a failed one makes the exit code 1.
func examine(ctx context.Context, conf *upConfig, asJSON bool, out io.Writer) error {
	report := struct {
		OK       bool      `json:"ok"`
		Findings []finding `json:"findings"`
	}{OK: true}
	for _, c := range checks(conf) {
		f := c.run(ctx, conf)
		f.Name = c.name
		report.Findings = append(report.Findings, f)
		report.OK = report.OK && f.Level != levelFail
		if !asJSON {
			f.print(out)
		}
	}
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(report); err != nil {
			return err
		}
	}
	if !report.OK {
		return errSilent
	}
	return nil
}

func (f finding) print(out io.Writer) {
	fmt.Fprintf(out, "%-5s %-18s %s\n", f.Level, f.Name, f.Found)
	fmt.Fprintf(out, "%24s %s\n", "", f.Means)
	if f.Remedy != "" {
		fmt.Fprintf(out, "%24s to do: %s\n", "", f.Remedy)
	}
}
