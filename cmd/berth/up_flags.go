package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// upFlags are the flags that tell `berth up` and `berth doctor` what to run.
type upFlags struct {
	config    string
	state     string
	listen    string
	store     string
	bucket    string
	sandboxes string
}

func (f *upFlags) bind(cmd *cobra.Command) {
	def := newUpConfig()
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "read this YAML `FILE`; flags go before it (sample: deploy/berth.yaml)")
	flags.StringVar(&f.state, "state", def.State, "keep index, cache, credentials and logs in this `DIR`")
	flags.StringVar(&f.listen, "listen", def.Listen, "serve on `HOST:PORT`; port 0 takes any free one")
	flags.StringVar(&f.store, "store", "", "use the bucket of this S3 endpoint `URL`, with the credentials\nAWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; default: the embedded store")
	flags.StringVar(&f.bucket, "bucket", "", "the `NAME` of the bucket at --store")
	flags.StringVar(&f.sandboxes, "sandboxes", "on", "on, or off to serve files without machines")
}

// load returns the configuration: defaults, then the file, then the
// environment, then the flags that were given. It is validated.
func (f *upFlags) load(cmd *cobra.Command) (*upConfig, error) {
	conf := newUpConfig()
	if f.config != "" {
		if err := conf.readFile(f.config); err != nil {
			return nil, err
		}
	}
	if err := conf.readEnvironment(os.Getenv); err != nil {
		return nil, err
	}
	given := cmd.Flags().Changed
	if given("state") {
		state, err := filepath.Abs(f.state)
		if err != nil {
			return nil, fmt.Errorf("cannot use --state %q: %w", f.state, err)
		}
		conf.State = state
	}
	for name, set := range map[string]func(){
		"listen": func() { conf.Listen = f.listen },
		"store":  func() { conf.Store.URL = f.store },
		"bucket": func() { conf.Store.Bucket = f.bucket },
	} {
		if given(name) {
			set()
		}
	}
	if given("sandboxes") {
		if f.sandboxes != "on" && f.sandboxes != "off" {
			return nil, &usageError{fmt.Errorf("invalid --sandboxes %q: it is on or off: %w", f.sandboxes, fs.ErrInvalid)}
		}
		conf.Sandboxes.Enabled = f.sandboxes == "on"
	}
	return &conf, conf.validate()
}
