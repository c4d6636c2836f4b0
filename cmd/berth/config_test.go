package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"berth/deploy"
)

func writeFile(t *testing.T, data string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestSampleConfig holds deploy/berth.yaml against the code: it names every
// field, no other, and its values are the defaults.
func TestSampleConfig(t *testing.T) {
	var got upConfig
	if err := got.readFile(writeFile(t, string(deploy.SampleConfig()))); err != nil {
		t.Fatal(err)
	}
	want := newUpConfig()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	var sample map[string]any
	if err := yaml.NewDecoder(bytes.NewReader(deploy.SampleConfig())).Decode(&sample); err != nil {
		t.Fatal(err)
	}
	checkFields(t, "", sample, reflect.TypeFor[upConfig]())
}

func checkFields(t *testing.T, prefix string, sample map[string]any, typ reflect.Type) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		if !field.IsExported() {
			continue
		}
		name := field.Tag.Get("yaml")
		value, there := sample[name]
		if !there {
			t.Errorf("the sample does not name %s%s", prefix, name)
		}
		if field.Type.Kind() == reflect.Struct {
			inner, _ := value.(map[string]any)
			checkFields(t, prefix+name+".", inner, field.Type)
		}
	}
}

func TestReadFile(t *testing.T) {
	tests := []struct{ name, in, wantErr string }{
		{"partial", "listen: 127.0.0.1:9\nsandboxes:\n  pool: 5\n", ""},
		{"empty", "", ""},
		{"unknown field", "listn: x\n", "listn"},
		{"unknown inner field", "sandboxes:\n  egress: open\n", "egress"},
		{"wrong type", "gateway_uid: me\n", "me"},
		{"two documents", "user: a\n---\nuser: b\n", "more than one"},
		{"no YAML", "{", "did not find"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conf := newUpConfig()
			err := conf.readFile(writeFile(t, tt.in))
			if tt.wantErr == "" {
				if err != nil {
					t.Fatal(err)
				}
				if conf.Sandboxes.Image != defaultImage || conf.User != "me" {
					t.Errorf("fields that the file does not name changed: %+v", conf)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("got %v, want an error with %q", err, tt.wantErr)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*upConfig)
		want   string // part of the error, "" = none
	}{
		{"defaults", func(*upConfig) {}, ""},
		{"any port", func(c *upConfig) { c.Listen = "127.0.0.1:0" }, ""},
		{"all addresses", func(c *upConfig) { c.Listen = ":8080" }, ""},
		{"relative state", func(c *upConfig) { c.State = "here" }, "absolute"},
		{"root as state", func(c *upConfig) { c.State = "/" }, "directory of its own"},
		{"long state", func(c *upConfig) { c.State = "/" + strings.Repeat("x", 100) }, "at most"},
		{"no port", func(c *upConfig) { c.Listen = "127.0.0.1" }, "HOST:PORT"},
		{"bad port", func(c *upConfig) { c.Listen = "127.0.0.1:99999" }, "not a port"},
		{"named port", func(c *upConfig) { c.Listen = "127.0.0.1:http" }, "not a port"},
		{"preview port", func(c *upConfig) { c.PreviewHost = "localhost:80" }, "preview_host"},
		{"no preview host", func(c *upConfig) { c.PreviewHost = "" }, "preview_host"},
		{"gateway as root", func(c *upConfig) { c.GatewayUID = 0 }, "gateway_uid"},
		{"gateway as machine", func(c *upConfig) { c.GatewayUID = machineUID }, "gateway_uid"},
		{"workspace", func(c *upConfig) { c.Workspace = "a/b" }, "workspace"},
		{"user", func(c *upConfig) { c.User = ".hidden" }, "user"},
		{"bucket alone", func(c *upConfig) { c.Store.Bucket = "b" }, "without url"},
		{"url alone", func(c *upConfig) { c.Store.URL = "http://s3" }, "without bucket"},
		{"no http", func(c *upConfig) { c.Store = storeSettings{URL: "s3://x", Bucket: "b"} }, "http://HOST"},
		{"path", func(c *upConfig) { c.Store = storeSettings{URL: "http://x/b", Bucket: "b"} }, "no path"},
		{"password in url", func(c *upConfig) { c.Store = storeSettings{URL: "http://u:p@x", Bucket: "b"} }, "AWS_ACCESS_KEY_ID"},
		{"no credentials", func(c *upConfig) { c.Store = storeSettings{URL: "http://x", Bucket: "b"} }, "must be set"},
		{"pool", func(c *upConfig) { c.Sandboxes.Pool = -1 }, "pool"},
		{"max running", func(c *upConfig) { c.Sandboxes.MaxRunning = -1 }, "max_running"},
		{"history", func(c *upConfig) { c.HistoryDays = 0 }, "history_days"},
		{"idle", func(c *upConfig) { c.IdleMinutesKey = 0 }, "idle_minutes"},
		{"no image", func(c *upConfig) { c.Sandboxes.Image = "" }, "image"},
		{"no runtime", func(c *upConfig) { c.Sandboxes.Runtime = "" }, "runtime"},
		{"off needs no image", func(c *upConfig) { c.Sandboxes = sandboxSettings{} }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conf := newUpConfig()
			tt.change(&conf)
			err := conf.validate()
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("got %v, want an fs.ErrInvalid with %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "u:p") {
				t.Errorf("the error shows a password: %v", err)
			}
		})
	}
}

// TestFlagsGoBeforeFileAndEnvironment runs the flags as a command does.
func TestFlagsGoBeforeFileAndEnvironment(t *testing.T) {
	t.Setenv("SANDBOX_IDLE_MINUTES", "0.5")
	t.Setenv("DOCKER_HOST", "")
	file := writeFile(t, "state: /from-file\nlisten: 127.0.0.1:1\nsandboxes:\n  pool: 7\n")
	var flags upFlags
	cmd := newDoctorCommand()
	cmd.ResetFlags()
	flags.bind(cmd)
	if err := cmd.ParseFlags([]string{"--config", file, "--listen", "127.0.0.1:2", "--sandboxes=off"}); err != nil {
		t.Fatal(err)
	}
	conf, err := flags.load(cmd)
	if err != nil {
		t.Fatal(err)
	}
	want := newUpConfig()
	want.State, want.Listen = "/from-file", "127.0.0.1:2"
	want.Sandboxes.Pool, want.Sandboxes.Enabled = 7, false
	want.IdleMinutesMember, want.IdleMinutesKey = 0.5, 0.5
	if conf.credentials = (storeCredentials{}); !reflect.DeepEqual(*conf, want) {
		t.Errorf("got %+v\nwant %+v", *conf, want)
	}
}
