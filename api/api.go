// Package api is Berth's HTTP face: the API under /v1, the web app, and the
// sign-in link. It is the only importer of echo.
//
// Who asks is a principal: an operator (the installation), an admin (one
// workspace), a member (its own disk, the workspace's shared directory, its
// chats) or an API key (its chats and their end users' files). Principals
// present a bearer token, of which only the SHA-256 is stored, or, in a
// browser, the cookie that the single-use sign-in link leaves. Each route of
// the table in routes.go names the principals it serves by the type its
// handler takes, so that no handler runs without the check. What does not
// belong to the principal answers 404, as if it were not there.
//
// Every request of a principal runs under a context that revoking the
// principal cancels: access, streams and transfers end at once.
//
// Files are reached through os.Root on the gateway's view of the trees, opened
// per request. The machines that write there are hostile: links never lead
// out, only regular files are opened, every file operation has a deadline, and
// memory does not grow with what is found. Untrusted bytes are sent with a
// policy that keeps a browser from running them.
//
// Errors are JSON, {"code","message"}; errors.go holds the one table from error
// to status. openapi.yaml describes every route and is held against the table
// by a test.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/preview"
)

// Trees is what the API asks of mountd. It can be used from many goroutines;
// errors match fs.ErrNotExist, fs.ErrInvalid or berth.ErrUnavailable.
type Trees interface {
	// AttachTree makes the tree's files appear in the view directory.
	AttachTree(ctx context.Context, t berth.Tree) error
	// RemoveTree deletes every file of the tree.
	RemoveTree(ctx context.Context, t berth.Tree) error
	// Before returns the content that a file had at a checkpoint and its size. It
	// fails with fs.ErrNotExist if there was no such file. The caller closes it.
	Before(ctx context.Context, t berth.Tree, path string, checkpoint uint64) (io.ReadCloser, int64, error)
	// ChangesSince lists what changed in a tree since a checkpoint, by path; more
	// says that there is more.
	ChangesSince(ctx context.Context, t berth.Tree, checkpoint uint64) (changes []berth.PathChange, more bool, err error)
	// Versions lists the earlier contents of a path that are kept, the latest first.
	Versions(ctx context.Context, t berth.Tree, path string) ([]berth.Version, error)
	// OpenVersion opens one of them and tells its size. The caller closes it.
	OpenVersion(ctx context.Context, t berth.Tree, path, id string) (io.ReadCloser, int64, error)
	// Restore writes a version of a path to the path again.
	Restore(ctx context.Context, t berth.Tree, path, id string) error
	// Deleted lists the files that were deleted below a directory, "" being the
	// tree's root; more says that there may be more.
	Deleted(ctx context.Context, t berth.Tree, dir string) (files []berth.DeletedFile, more bool, err error)
	// Status describes the file system in JSON.
	Status(ctx context.Context) (json.RawMessage, error)
}

// A Call is one tool call.
type Call struct {
	ID     berth.ID
	Expert berth.ID // whose working directory it runs in; one of the view's
	Tool   string
	Args   json.RawMessage // a JSON object
}

// A Machine tells the state of a chat's machine.
type Machine struct {
	ID        berth.ID  `json:"id"`
	State     string    `json:"state"` // waiting, creating, running, sleeping, terminated or failed
	Reason    string    `json:"reason,omitempty"`
	Image     string    `json:"image,omitempty"`
	Isolation []string  `json:"isolation,omitempty"` // what its runtime enforces
	Missing   []string  `json:"missing,omitempty"`   // what should be enforced and is not
	Since     time.Time `json:"since,omitzero"`
}

// Machines is what the API asks of the sandbox manager. It can be used from
// many goroutines. Errors match fs.ErrNotExist, fs.ErrInvalid,
// berth.ErrUnavailable, or ErrLimit when a limit of running machines is met.
type Machines interface {
	// Run runs a tool in the view's machine, which it starts or wakes, and returns
	// the tool's answer, a JSON object. It ends with ctx.
	Run(ctx context.Context, v berth.View, c Call) (json.RawMessage, error)
	// Machine returns the state of a machine; one that never ran is waiting.
	Machine(ctx context.Context, id berth.ID) (Machine, error)
	// Stop puts the machine to sleep. One that does not run stays as it is.
	Stop(ctx context.Context, v berth.View) error
	// Wake starts the machine if it does not run.
	Wake(ctx context.Context, v berth.View) error
	// Counts returns how many machines run and how many warm ones wait for a claim.
	Counts() (running, warm int)
	// Destroy ends the machine for good and removes its home.
	Destroy(ctx context.Context, v berth.View) error
}

// Options are what a Server needs.
type Options struct {
	Records  berth.Records
	Trees    Trees
	Machines Machines // nil: sandboxes are off
	Feed     *preview.Feed
	// ViewDir is the directory below which each attached tree is found under
	// its name.
	ViewDir string
	// Secret is the installation's secret, from which the keys of cookies and
	// sign-in links are derived.
	Secret []byte
	// App holds the web app: index.html and hashed files under assets/.
	App fs.FS
	// PreviewHost is the host name of the web app; previews are below it.
	PreviewHost string
	// Tools are the names of the tools that machines have.
	Tools []string
	// MaxUpload is the largest file that can be written in bytes; 0 is 512 MiB.
	MaxUpload int64
	Logger    *slog.Logger
	Now       func() time.Time // nil is time.Now

	// FileTimeout bounds each single operation on a file, 0 is 30 s; Heartbeat is
	// the time between comments in an event stream, 0 is 15 s; TransferTime is how
	// long a client may take to send a body or take an answer, or one piece of a
	// file, 0 is a minute.
	FileTimeout  time.Duration
	Heartbeat    time.Duration
	TransferTime time.Duration
}

// A Server answers the API's requests.
type Server struct {
	o       Options
	echo    *echo.Echo
	records records
	cuts    *cuts
	owners  *ownerCache
	fileOps chan struct{} // one token per file operation under way
	bulk    *turns        // of tool calls that carry whole files
	started time.Time
}

// New returns a server. Serve runs it.
func New(o Options) (*Server, error) {
	if len(o.Secret) < 32 {
		return nil, errors.New("cannot make the API: the secret is shorter than 32 bytes")
	}
	if o.Records == nil || o.Trees == nil || o.Feed == nil || o.Logger == nil || o.App == nil || o.PreviewHost == "" {
		return nil, errors.New("BUG: cannot make the API: an option is missing")
	}
	o.MaxUpload = or(o.MaxUpload, 512<<20)
	o.FileTimeout = or(o.FileTimeout, 30*time.Second)
	o.Heartbeat = or(o.Heartbeat, 15*time.Second)
	o.TransferTime = or(o.TransferTime, time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		o: o, echo: echo.New(), records: records{o.Records}, cuts: newCuts(), owners: newOwnerCache(),
		fileOps: make(chan struct{}, maxFileOps), bulk: newTurns(maxBulk, maxBulkEach), started: o.Now(),
	}
	s.echo.HTTPErrorHandler = s.writeError
	s.echo.Pre(s.recovered, s.timed, keepEscapes, secured, s.checkHost)
	for _, r := range s.routes() {
		s.echo.Add(r.method, r.path, r.serve)
	}
	return s, nil
}

// or returns v, or instead if v is zero.
func or[T comparable](v, instead T) T {
	var zero T
	if v == zero {
		return instead
	}
	return v
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.echo.ServeHTTP(w, r) }

// Serve answers requests on the listener until ctx ends. Then it ends all
// streams, gives other requests a short time to finish, and returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		// No WriteTimeout: streams last. Each write of a stream or file has a
		// deadline of its own.
		ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.cuts.cutStreams(errStopping)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		s.cuts.cutAll(errStopping)
		srv.Close()
	}
	<-failed
	return nil
}
