package sandbox

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"berth"
)

// maxBody bounds requests and answers of sandboxd's socket. A request holds one
// id; an answer lists all containers of a host.
const (
	maxBody   = 4 << 10
	maxAnswer = 4 << 20
)

// A Server offers a provider on a unix socket to the gateway: HTTP/1.1 and
// JSON. A request carries a slot's id and nothing else that could decide what a
// container is made of or reaches.
type Server struct {
	Provider   Provider
	Token      string // the caller must know it
	GatewayUID int    // and be of this user, or root
	Logger     *slog.Logger
}

// Serve listens on the socket until ctx ends, and calls ready when it does.
func (s *Server) Serve(ctx context.Context, socket string, ready func() error) error {
	if s.Token == "" {
		return fmt.Errorf("cannot serve sandboxes: the token is empty: %w", fs.ErrInvalid)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot clear socket: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	defer listener.Close()
	if err := errors.Join(os.Chmod(socket, 0o600), os.Chown(socket, s.GatewayUID, -1)); err != nil {
		return fmt.Errorf("cannot give socket to gateway: %w", err)
	}
	server := &http.Server{
		Handler: s.Handler(), ConnContext: withPeer, MaxHeaderBytes: 16 << 10,
		ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err := ready(); err != nil {
		server.Close()
		return err
	}
	select {
	case err := <-served:
		return fmt.Errorf("cannot serve sandboxes: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(stop); err != nil {
		server.Close()
	}
	return nil
}

// peerKey keeps the uid of a connection's other end in its context.
type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	if cred, err := peerCred(uc); err == nil {
		ctx = WithPeerUID(ctx, int(cred.Uid))
	}
	return ctx
}

// WithPeerUID returns the context of a request that a user makes. Serve does
// this for each connection.
func WithPeerUID(ctx context.Context, uid int) context.Context {
	return context.WithValue(ctx, peerKey{}, uid)
}

// Handler answers the socket's requests, of which Serve has found out the user.
func (s *Server) Handler() http.Handler { return s.guard(s.routes()) }

// peerCred returns who is at the other end of a connection.
func peerCred(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}

// guard lets only the gateway and root in, and only with the token.
func (s *Server) guard(next http.Handler) http.Handler {
	want := []byte("Bearer " + s.Token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid, known := r.Context().Value(peerKey{}).(int)
		token := subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) == 1
		if !known || uid != 0 && uid != s.GatewayUID || !token {
			writeAnswer(w, http.StatusForbidden, wireError{"permission", "this socket is the gateway's"})
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/info", func(w http.ResponseWriter, r *http.Request) {
		info, err := s.Provider.Info(r.Context())
		s.reply(w, info, err)
	})
	mux.HandleFunc("GET /v1/containers", func(w http.ResponseWriter, r *http.Request) {
		all, err := s.Provider.List(r.Context())
		s.reply(w, all, err)
	})
	mux.HandleFunc("POST /v1/containers", func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		var q createRequest
		if err == nil {
			err = decodeStrict(data, &q)
		}
		if err != nil {
			s.reply(w, nil, fmt.Errorf("cannot decode request: %v: %w", err, fs.ErrInvalid))
			return
		}
		slot, err := berth.ParseID("slot", q.Slot)
		if err != nil {
			s.reply(w, nil, err)
			return
		}
		c, err := s.Provider.Create(r.Context(), slot)
		s.reply(w, c, err)
	})
	mux.HandleFunc("GET /v1/containers/{slot}/stats", s.withSlot(func(ctx context.Context, slot berth.ID) (any, error) {
		return s.Provider.Stats(ctx, slot)
	}))
	mux.HandleFunc("DELETE /v1/containers/{slot}", s.withSlot(func(ctx context.Context, slot berth.ID) (any, error) {
		return struct{}{}, s.Provider.Destroy(ctx, slot)
	}))
	return mux
}

type createRequest struct {
	Slot string `json:"slot"`
}

func (s *Server) withSlot(serve func(context.Context, berth.ID) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		slot, err := berth.ParseID("slot", r.PathValue("slot"))
		if err != nil {
			s.reply(w, nil, err)
			return
		}
		a, err := serve(r.Context(), slot)
		s.reply(w, a, err)
	}
}

// wireError is the body of an answer that is not 200.
type wireError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// wireCodes maps errors to codes and back, with the HTTP status of each.
var wireCodes = [...]struct {
	code   string
	status int
	err    error
}{
	{"not_found", http.StatusNotFound, fs.ErrNotExist},
	{"exists", http.StatusConflict, fs.ErrExist},
	{"invalid", http.StatusBadRequest, fs.ErrInvalid},
	{"permission", http.StatusForbidden, fs.ErrPermission},
	{"unavailable", http.StatusServiceUnavailable, berth.ErrUnavailable},
}

// reply answers a request; an error of no known kind is logged, since its
// sender learns little from its code.
func (s *Server) reply(w http.ResponseWriter, answer any, err error) {
	if err == nil {
		writeAnswer(w, http.StatusOK, answer)
		return
	}
	for _, c := range wireCodes {
		if errors.Is(err, c.err) {
			writeAnswer(w, c.status, wireError{c.code, err.Error()})
			return
		}
	}
	s.Logger.Warn("Cannot serve request", "err", err)
	writeAnswer(w, http.StatusInternalServerError, wireError{"internal", err.Error()})
}

func writeAnswer(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(answer) // the caller may be gone
}
