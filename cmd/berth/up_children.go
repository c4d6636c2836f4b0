package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/deploy"
	"berth/fusefs/object"
	"berth/mounts"
)

// childEnvironment is what the processes get of this one's environment: not
// the credentials, which go by descriptor 3 to the one that needs them.
func childEnvironment(environ []string) []string {
	allowed := []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "GODEBUG", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK"}
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !slices.Contains(allowed, name)
	})
}

// writeTemplate writes the project template that machines see read-only.
func writeTemplate(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("cannot write the project template: %w", err)
	}
	if err := os.CopyFS(dir, deploy.Template()); err != nil {
		return fmt.Errorf("cannot write the project template: %w", err)
	}
	// Embedded files have no modes of their own.
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("cannot write the project template: %w", err)
		}
		mode := os.FileMode(0o644)
		if d.IsDir() {
			mode = 0o755
		}
		return os.Chmod(name, mode)
	})
}

// takeReady returns a child's ready function that decodes the line into v.
func takeReady(v any) func([]byte) error {
	return func(line []byte) error {
		if err := json.Unmarshal(line, v); err != nil {
			return fmt.Errorf("cannot decode its ready line: %w", err)
		}
		return nil
	}
}

// startStore starts the embedded store, or takes the one that is configured.
func (in *installation) startStore(ctx context.Context) error {
	if !in.conf.embedded() {
		in.storeURL = in.conf.Store.URL
		in.say("store: %s, bucket %s", in.storeURL, in.conf.Store.Bucket)
		return nil
	}
	in.store = storeConfig{
		Dir:       in.state.storeDir(),
		Listen:    "127.0.0.1:0",
		AccessKey: in.creds.StoreAccessKey,
		SecretKey: in.creds.StoreSecretKey,
		Bucket:    embeddedBucket,
	}
	err := in.sup.Start(ctx, child{
		name:   "store",
		config: func() (any, error) { return in.store, nil },
		ready: func(line []byte) error {
			var ready storeReady
			if err := takeReady(&ready)(line); err != nil {
				return err
			}
			u, err := url.Parse(ready.URL)
			if err != nil {
				return fmt.Errorf("cannot use the store's address: %w", err)
			}
			if in.storeURL != "" && ready.URL != in.storeURL {
				return fmt.Errorf("its port %s is taken by another process", in.store.Listen)
			}
			// mountd has this address: a store that is started again keeps it.
			in.storeURL, in.store.Listen = ready.URL, u.Host
			return nil
		},
		startWithin: 30 * time.Second,
		stopWithin:  15 * time.Second,
	})
	if err == nil {
		in.say("store: embedded, objects in %s", in.store.Dir)
	}
	return err
}

// revalidateSeconds is how long what a store said of an object is believed where
// others than this installation write to the bucket.
const revalidateSeconds = 5

func (in *installation) mountdConfig() mountdConfig {
	conf := mountdConfig{
		State: in.state.path,
		Store: mountdStore{
			URL: in.storeURL, Bucket: in.conf.Store.Bucket, Region: in.conf.Store.Region,
			AccessKey: in.conf.credentials.accessKey, SecretKey: in.conf.credentials.secretKey,
			Session: in.conf.credentials.session, Exclusive: in.conf.Store.Exclusive,
		},
		Socket:      in.state.mountdSocket(),
		SocketToken: in.tokens.mountd,
		GatewayUID:  in.conf.GatewayUID,
		MachineUID:  machineUID,
		MachineGID:  machineGID,
		TemplateDir: in.state.templateDir(),

		Quotas:            in.conf.Quotas,
		RevalidateSeconds: revalidateSeconds,
		HistoryDays:       in.conf.HistoryDays,
	}
	if in.conf.embedded() {
		conf.Store.Bucket, conf.Store.Exclusive = in.store.Bucket, true
		conf.Store.AccessKey, conf.Store.SecretKey = in.store.AccessKey, in.store.SecretKey
	}
	return conf
}

func (in *installation) startMountd(ctx context.Context) error {
	err := in.sup.Start(ctx, child{
		name:        "mountd",
		config:      func() (any, error) { return in.mountdConfig(), nil },
		ready:       takeReady(&in.mountd),
		startWithin: 2 * time.Minute, // it compares what was open for writing when it was killed
		stopWithin:  5 * time.Minute, // it uploads what is not in the bucket yet
	})
	if err != nil {
		return err
	}
	in.say("file system: %s", describeFileSystem(in.mountd))
	for _, line := range describeStore(in.mountd.Abilities) {
		in.say("store: %s", line)
	}
	return nil
}

// describeStore says of each ability whether the store has it, and what that means.
func describeStore(a object.Abilities) []string {
	var lines []string
	for _, ability := range a.Explain() {
		has := "has "
		if !ability.Have {
			has = "has no "
		}
		lines = append(lines, has+ability.Name+": "+ability.Text)
	}
	return lines
}

func (in *installation) mountsClient() *mounts.Client {
	return mounts.NewClient(in.state.mountdSocket(), in.tokens.mountd)
}

// describeFileSystem says how the file system runs on this host.
func describeFileSystem(m mountdReady) string {
	speed := "open files are served by the kernel (passthrough)"
	if !m.Passthrough {
		speed = "open files are served by berth itself, which is slower (berth doctor tells why)"
	}
	if !m.IDMap {
		speed += "; the gateway runs with the machines' user id"
	}
	return speed
}
