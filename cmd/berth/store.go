package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"berth/fusefs/object/embedded"
)

// storeConfig is what `berth store` reads from descriptor 3.
type storeConfig struct {
	Dir       string `json:"dir"`
	Listen    string `json:"listen"` // a loopback address; port 0, or one that is taken, becomes a free one
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
	Bucket    string `json:"bucket"`
}

// storeReady is what it announces on descriptor 4.
type storeReady struct {
	Ready bool   `json:"ready"`
	URL   string `json:"url"`
}

func newStoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "store",
		Short:  "Serve the embedded S3 store (started by berth up)",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := readConfig[storeConfig]()
			if err != nil {
				return err
			}
			ctx, stop := childContext(cmd.Context())
			defer stop()
			// A parent that cannot hear that the store is ready is gone.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			var unheard error // written before cancel, read after Run returned
			ready := func(url string) {
				if unheard = announceReady(storeReady{true, url}); unheard != nil {
					cancel()
				}
			}
			err = embedded.Run(ctx, embedded.Options{
				Dir:       conf.Dir,
				Listen:    conf.Listen,
				AccessKey: conf.AccessKey,
				SecretKey: conf.SecretKey,
				Bucket:    conf.Bucket,
				Logger:    childLogger(),
				Ready:     ready,
			})
			return errors.Join(err, unheard)
		},
	}
}
