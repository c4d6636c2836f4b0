package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/net/http2"
)

// Options say how to serve a machine.
type Options struct {
	Socket     string   // of the gateway: SocketPath in a machine
	Home       string   // berth.Home in a machine; what "dir" of a request is below
	Shell      string   // runs the scripts of commands
	Env        []string // of commands
	Supervisor []string // the command line of a process that calls Supervise
	// Init says that this process is PID 1 of the machine and so the parent of
	// every orphan, which it reaps.
	Init bool
}

// Serve dials the gateway again and again and serves what it asks for, until
// ctx ends. Then it ends all commands and returns.
func Serve(ctx context.Context, o Options) error {
	cmds := &commands{
		supervisors: supervisors{argv: o.Supervisor, live: map[int]*supervisorProcess{}}, shell: o.Shell, env: o.Env, home: o.Home,
	}
	defer cmds.close()
	if o.Init {
		harden()
		ignoreSignals()
		signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
		warmThreads(16)
		go cmds.reapOrphans(ctx)
	}
	cmds.prepare()
	server := &http2.Server{MaxConcurrentStreams: 256}
	base := &http.Server{ErrorLog: log.New(io.Discard, "", 0)} // there is nobody to read it
	handler := routes(cmds)
	pause := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", o.Socket)
		if err != nil {
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			continue
		}
		pause = 5 * time.Millisecond
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		server.ServeConn(conn, &http2.ServeConnOpts{Context: ctx, Handler: handler, BaseConfig: base})
		stop()
		conn.Close()
	}
}

// reapOrphans sweeps whenever a child has ended.
func (s *supervisors) reapOrphans(ctx context.Context) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	for {
		select {
		case <-ctx.Done():
			return
		case <-children:
			s.sweep()
		}
	}
}

// routes returns the handler of the services.
func routes(c *commands) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+PathBash, service(func(ctx context.Context, q Command) (*Result, error) {
		if len(q.Script) > MaxCommand || q.TimeoutMS < 0 || q.TimeoutMS > MaxTimeout.Milliseconds() {
			return nil, invalidf("the command has %d bytes and a timeout of %d ms, at most %d and %d are allowed",
				len(q.Script), q.TimeoutMS, MaxCommand, MaxTimeout.Milliseconds())
		}
		return c.run(ctx, q)
	}))
	mux.Handle("POST "+PathRead, service(func(_ context.Context, q ReadRequest) (*ReadResult, error) {
		return readFile(c.home, q)
	}))
	mux.Handle("POST "+PathWrite, service(func(_ context.Context, q WriteRequest) (*WriteResult, error) {
		return writeFile(c.home, q)
	}))
	mux.Handle("POST "+PathList, service(func(ctx context.Context, q ListRequest) (*ListResult, error) {
		return listFiles(ctx, c.home, q)
	}))
	mux.Handle("POST "+PathEnd, service(func(context.Context, struct{}) (*struct{}, error) {
		c.endAll()
		return &struct{}{}, nil
	}))
	return mux
}

// service makes a handler of a function from one JSON value to another.
func service[Q, A any](serve func(context.Context, Q) (*A, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q Q
		w.Header().Set("Content-Type", "application/json")
		a, err := func() (*A, error) {
			if err := json.NewDecoder(io.LimitReader(r.Body, MaxRequest)).Decode(&q); err != nil {
				return nil, invalidf("cannot decode request: %v", err)
			}
			return serve(r.Context(), q)
		}()
		if err == nil {
			json.NewEncoder(w).Encode(a)
			return
		}
		e := toError(err)
		status := http.StatusUnprocessableEntity
		if e.Code == CodeInternal {
			status = http.StatusInternalServerError
		}
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(e)
	})
}

// Environment is what commands of a machine see: little, and the same always.
func Environment(home string) []string {
	return []string{
		"HOME=" + home, "USER=user", "LOGNAME=user", "SHELL=/bin/bash", "LANG=C.UTF-8", "TERM=dumb",
		fmt.Sprintf("PATH=%s/.local/bin:/usr/local/bin:/usr/bin:/bin", home),
	}
}
