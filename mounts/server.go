package mounts

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"berth"
)

// A Server offers mounts, the file system's history and records to the gateway
// on a unix socket. Set its fields before Serve; Token must not be empty. Without
// a Host or Records the requests that need them do not exist.
type Server struct {
	Host       *Host
	FileSystem FileSystem
	Records    *Records
	Token      string // the caller must know it,
	PeerUID    uint32 // and be of this user, or root
	Logger     *slog.Logger
}

const (
	writeTime    = 30 * time.Second // for the caller to take what is sent, or a piece of a stream
	headerTime   = 10 * time.Second // for a request's header and body
	shutdownTime = 10 * time.Second // for requests that run when Serve ends
	maxHeader    = 16 << 10
)

// Serve listens on the socket, calls ready, and serves until ctx ends. It
// returns when every request was answered or given up.
func (s *Server) Serve(ctx context.Context, socket string, ready func() error) error {
	if s.Token == "" {
		return fmt.Errorf("cannot serve mounts: no token is set: %w", fs.ErrInvalid)
	}
	listener, err := s.listen(socket)
	if err != nil {
		return fmt.Errorf("cannot serve mounts: %w", err)
	}
	server := &http.Server{
		Handler:           s.handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends streams and waits
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err = ready(); err == nil {
		select {
		case err := <-served:
			return fmt.Errorf("cannot serve mounts: %w", err)
		case <-ctx.Done():
		}
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if server.Shutdown(stop) != nil {
		server.Close()
	}
	<-served
	return err
}

// listen makes the socket anew. Only the peer's user and root can connect.
func (s *Server) listen(socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chmod(socket, 0o600), os.Chown(socket, int(s.PeerUID), -1)); err != nil {
		l.Close()
		return nil, err
	}
	return &peerListener{Listener: l, allow: []uint32{0, s.PeerUID}, log: s.Logger}, nil
}

// A peerListener accepts connections of some users only.
type peerListener struct {
	net.Listener
	allow []uint32
	log   *slog.Logger
}

func (l *peerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		cred, err := peerOf(conn)
		if err == nil && slices.Contains(l.allow, cred.Uid) {
			return conn, nil
		}
		conn.Close()
		if err == nil {
			err = fmt.Errorf("it is of user %d: %w", cred.Uid, fs.ErrPermission)
		}
		l.log.Warn("Cannot accept a connection", "cause", err)
	}
}

// peerOf returns who opened the other end of a connection.
func peerOf(conn net.Conn) (*unix.Ucred, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("it is no unix socket: %w", fs.ErrInvalid)
	}
	raw, err := uc.SyscallConn()
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

// guard lets requests with the token through, with a bounded body.
func (s *Server) guard(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + s.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		have := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(have[:], want[:]) != 1 {
			s.fail(w, fmt.Errorf("the token is wrong: %w", fs.ErrPermission))
			return
		}
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTime))
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		next.ServeHTTP(w, r)
	})
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, serve := range s.routes() {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				s.fail(w, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, fmt.Errorf("there is no request %.16q %.64q: %w", r.Method, r.URL.Path, fs.ErrNotExist))
	})
	return s.guard(mux)
}

// fail answers with an error. One that the table does not know is an operator's
// affair and logged.
func (s *Server) fail(w http.ResponseWriter, err error) {
	status, msg, known := toWire(err)
	if !known {
		s.Logger.Error("Cannot serve a request", "cause", err)
	}
	s.answer(w, status, msg)
}

func (s *Server) answer(w http.ResponseWriter, status int, v any) {
	data, err := encode(v)
	if err != nil {
		s.Logger.Error("Cannot encode an answer: BUG", "cause", err)
		status, data = http.StatusInternalServerError, []byte(`{"code":"internal","message":"the answer cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	w.WriteHeader(status)
	w.Write(data) // a caller that is gone needs no answer
}

// A route answers a request, or returns the error to answer with.
type route func(http.ResponseWriter, *http.Request) error

func (s *Server) routes() map[string]route {
	routes := map[string]route{
		pathTreesAttach: call(s, s.attachTree),
		pathTreesRemove: call(s, s.removeTree),
		pathTreesFlush:  call(s, s.flush),
		pathCheckpoint:  call(s, s.checkpoint),
		pathBefore:      s.before,
		pathSince:       call(s, s.since),
		pathVersions:    call(s, s.versions),
		pathVersion:     s.version,
		pathRestore:     call(s, s.restore),
		pathDeleted:     call(s, s.deleted),
		pathChanges:     s.changes,
		pathStatus:      call(s, s.status),
	}
	if s.Host != nil {
		routes[pathSlotsNew] = call(s, s.newSlot)
		routes[pathSlotsMount] = call(s, s.mountView)
		routes[pathSlotsRelease] = call(s, s.releaseSlot)
		routes[pathSlotsList] = call(s, s.listSlots)
	}
	if s.Records != nil {
		routes[pathRecordsGet] = call(s, s.getRecord)
		routes[pathRecordsList] = call(s, s.listRecords)
		routes[pathRecordsPut] = call(s, s.putRecord)
		routes[pathRecordsDelete] = call(s, s.deleteRecord)
	}
	return routes
}

// call makes a route of a function from one document to another.
func call[Q, A any](s *Server, do func(context.Context, Q) (A, error)) route {
	return func(w http.ResponseWriter, r *http.Request) error {
		var q Q
		if err := s.request(w, r, &q); err != nil {
			return err
		}
		a, err := do(r.Context(), q)
		if err != nil {
			return err
		}
		s.answer(w, http.StatusOK, a)
		return nil
	}
}

// request reads the request's document. What it asks for may take long.
func (s *Server) request(w http.ResponseWriter, r *http.Request, q any) error {
	err := decode(r.Body, q)
	http.NewResponseController(w).SetReadDeadline(time.Time{})
	return err
}

func (s *Server) newSlot(ctx context.Context, _ noneMessage) (slotMessage, error) {
	id, err := s.Host.NewSlot(ctx)
	return slotMessage{string(id)}, err
}

func (s *Server) mountView(ctx context.Context, q mountMessage) (noneMessage, error) {
	id, err := berth.ParseID("slot", q.Slot)
	if err == nil {
		err = s.Host.MountView(ctx, id, q.View)
	}
	return noneMessage{}, err
}

func (s *Server) releaseSlot(ctx context.Context, q slotMessage) (noneMessage, error) {
	id, err := berth.ParseID("slot", q.Slot)
	if err == nil {
		err = s.Host.ReleaseSlot(ctx, id)
	}
	return noneMessage{}, err
}

func (s *Server) listSlots(ctx context.Context, _ noneMessage) (slotsMessage, error) {
	infos, err := s.Host.Slots(ctx)
	return slotsMessage{infos}, err
}
