package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// fakeEngine answers as a Docker engine does, on a unix socket.
func fakeEngine(t *testing.T, info, image string) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "engine.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(info)) })
	mux.HandleFunc("GET /images/berth-machine:core/json", func(w http.ResponseWriter, _ *http.Request) {
		if image == "" {
			http.Error(w, `{"message":"No such image: berth-machine:core"}`, http.StatusNotFound)
			return
		}
		w.Write([]byte(image))
	})
	server := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() { server.Serve(listener); close(done) }()
	t.Cleanup(func() { server.Close(); <-done })
	return "unix://" + socket
}

const goodInfo = `{"ServerVersion":"20.10","Driver":"overlay2","CgroupVersion":"2","SecurityOptions":["name=seccomp,profile=default"],
	"MemoryLimit":true,"CpuCfsQuota":true,"PidsLimit":true,"Runtimes":{"runc":{}}}`

func TestEngineChecks(t *testing.T) {
	const image = `{"Id":"sha256:0123456789abcdef","Size":400000000}`
	tests := []struct {
		name, info, image string
		run               func(context.Context, *upConfig) finding
		level             level
		want              string
	}{
		{"engine", goodInfo, image, checkEngine, levelOK, "Docker 20.10"},
		{"vfs", strings.Replace(goodInfo, "overlay2", "vfs", 1), image, checkEngine, levelWarn, "vfs"},
		{"seccomp", goodInfo, image, checkSeccomp, levelOK, "has seccomp"},
		{"no seccomp", strings.Replace(goodInfo, "seccomp", "apparmor", 1), image, checkSeccomp, levelFail, "no seccomp"},
		{"limits", goodInfo, image, checkLimits, levelOK, "memory"},
		{"no pids limit", strings.Replace(goodInfo, `"PidsLimit":true`, `"PidsLimit":false`, 1), image, checkLimits, levelFail, "processes"},
		{"runtime", goodInfo, image, checkRuntime, levelOK, "runc"},
		{"no runtime", strings.Replace(goodInfo, `"runc":`, `"other":`, 1), image, checkRuntime, levelFail, "no runtime runc"},
		{"image", goodInfo, image, checkImage, levelOK, "0123456789ab"},
		{"no image", goodInfo, "", checkImage, levelFail, "No such image"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conf := newUpConfig()
			conf.Sandboxes.DockerHost = fakeEngine(t, tt.info, tt.image)
			f := tt.run(t.Context(), &conf)
			if f.Level != tt.level || !strings.Contains(f.Found, tt.want) {
				t.Errorf("got %+v, want %s with %q", f, tt.level, tt.want)
			}
			if (f.Level == levelOK) != (f.Remedy == "") || f.Means == "" {
				t.Errorf("got %+v, want a meaning, and a remedy if and only if it is not ok", f)
			}
		})
	}
}

func TestEngineAway(t *testing.T) {
	conf := newUpConfig()
	for _, host := range []string{"unix:///nowhere/engine.sock", "tcp://127.0.0.1:1", "ssh://x"} {
		conf.Sandboxes.DockerHost = host
		for _, c := range []func(context.Context, *upConfig) finding{checkEngine, checkSeccomp, checkLimits, checkRuntime, checkImage} {
			if f := c(t.Context(), &conf); f.Level != levelFail || f.Remedy == "" {
				t.Errorf("%s: got %+v, want fail with a remedy", host, f)
			}
		}
	}
}

func TestParseKernel(t *testing.T) {
	tests := []struct {
		release string
		want    kernelVersion
		ok      bool
	}{
		{"6.1.0-13-amd64", kernelVersion{6, 1}, true},
		{"6.18.44", kernelVersion{6, 18}, true},
		{"linux", kernelVersion{}, false},
	}
	for _, tt := range tests {
		got, err := parseKernel(tt.release)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: got %v, %v; want %v, ok=%v", tt.release, got, err, tt.want, tt.ok)
		}
	}
	if v := (kernelVersion{6, 8}); !v.before(kernelVersion{6, 9}) || v.before(kernelVersion{5, 19}) || v.before(v) {
		t.Error("before does not order 5.19, 6.8, 6.9")
	}
}

// TestDoctorOnThisHost runs all checks for real. What they find depends on the
// host; that propagation works is what the other tests rest on.
func TestDoctorOnThisHost(t *testing.T) {
	conf := newUpConfig()
	conf.State = filepath.Join(openDir(t), "state")
	var out bytes.Buffer
	err := examine(t.Context(), &conf, true, &out)
	var report struct {
		OK       bool
		Findings []finding
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("cannot decode %s: %v", out.String(), err)
	}
	if report.OK != (err == nil) {
		t.Errorf("got ok=%v with error %v", report.OK, err)
	}
	if got, want := len(report.Findings), len(checks(&conf)); got != want {
		t.Errorf("got %d findings, want %d", got, want)
	}
	for _, f := range report.Findings {
		if f.Name == "mount propagation" && f.Level != levelOK {
			t.Errorf("mount propagation: %+v", f)
		}
		if f.Name == "state directory" && f.Level != levelOK {
			t.Errorf("state directory: %+v", f)
		}
	}
}

func TestDoctorProbesTheStore(t *testing.T) {
	conf := newUpConfig()
	conf.Store.URL, conf.Store.Bucket = "http://127.0.0.1:1", "none"
	conf.credentials = storeCredentials{accessKey: "a", secretKey: "b"}
	if f := checkStoreAnswers(t.Context(), &conf); f.Level != levelFail || !strings.Contains(f.Found, "cannot probe the store") {
		t.Errorf("got %+v, want a failed probe", f)
	}
}
