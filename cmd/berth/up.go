package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"berth"
	"berth/api"
)

func newUpCommand() *cobra.Command {
	var flags upFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run an installation: store, file system, machines and gateway",
		Long: `Run an installation on this machine until SIGINT or SIGTERM. Nothing needs to be
configured: the first start makes a store, a workspace, a member and tokens. A
second SIGINT or SIGTERM does not wait for uploads; what is not in the bucket yet
stays journalled in the state directory and is uploaded by the next start.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := flags.load(cmd)
			if err != nil {
				return err
			}
			return runUp(cmd.Context(), conf, asJSON, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags.bind(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "when ready, print one JSON line instead of the words for a person")
	return cmd
}

// runUp runs an installation until a signal. The error tells why it could not
// start, or that it did not stop cleanly.
func runUp(parent context.Context, conf *upConfig, asJSON bool, stdout, stderr io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("cannot start berth: this needs root, which mounts file systems; run it with sudo")
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	hurry, hurryNow := context.WithCancelCause(context.WithoutCancel(parent))
	defer hurryNow(nil)
	go func() {
		for s := range signals { // ends with the process
			if ctx.Err() != nil && s != syscall.SIGHUP {
				hurryNow(fmt.Errorf("a second signal came (%v)", s))
			}
			stop(fmt.Errorf("a signal came (%v)", s))
		}
	}()

	in := &installation{conf: conf, out: stderr, log: slog.New(slog.NewTextHandler(stderr, nil))}
	err := in.start(ctx)
	if err == nil {
		err = in.announce(stdout, asJSON)
	}
	if err == nil {
		<-ctx.Done()
		in.say("stopping: what was written goes to the bucket (a second signal does not wait for that)")
	} else if ctx.Err() != nil {
		err = nil // stopped by a signal while it started
	}
	if stopErr := in.stop(hurry); err == nil {
		err = stopErr
	}
	if err == nil {
		in.say("stopped")
	}
	return err
}

// An installation is what `berth up` runs. Its init methods are called in the
// order of start; stop undoes them in reverse.
type installation struct {
	conf *upConfig
	out  io.Writer // progress for a person
	log  *slog.Logger

	state    *stateDir
	creds    credentials
	secret   string
	sup      *supervisor
	tokens   struct{ mountd, sandboxd string } // of the sockets, new at each start
	store    storeConfig                       // as it runs, when it is the embedded one
	storeURL string
	mountd   mountdReady
	gateway  gatewayReady
}

func (in *installation) say(format string, args ...any) {
	fmt.Fprintf(in.out, "==> "+format+"\n", args...)
}

func (in *installation) start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		in.initProcess,
		in.initState,    // the lock comes before all that could disturb another up
		in.clearRemains, // before anything of ours could be taken for a remainder
		in.initSupervisor,
		in.startStore,
		in.startMountd, // needs the store
		in.begin,       // needs mountd's records
		in.startSandboxd,
		in.startGateway, // needs both, and the credentials' records
		in.publish,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stop ends all processes, the last one started first, and clears up.
func (in *installation) stop(hurry context.Context) error {
	var err error
	if in.sup != nil {
		err = in.sup.Stop(hurry)
	}
	if in.state == nil {
		return err
	}
	os.Remove(controlFile(in.state.path))
	os.Remove(in.state.memberEnvFile())
	n, clearErr := clearMounts(in.state.path)
	if n > 0 {
		in.log.Warn("Mounts were left and have been removed", "mounts", n)
	}
	return errors.Join(err, clearErr, in.state.Close())
}

// initProcess sets what the children inherit.
func (in *installation) initProcess(context.Context) error {
	syscall.Umask(0o022)
	if _, err := raiseOpenFiles(); err != nil {
		in.log.Warn("Cannot raise the limit of open files", "cause", err)
	}
	os.WriteFile("/proc/self/oom_score_adj", []byte(oomScoreAdj), 0) // as for the children, see register
	return nil
}

func (in *installation) initState(context.Context) error {
	var err error
	if in.state, err = openState(in.conf.State); err != nil {
		return err
	}
	if in.secret, err = in.state.loadSecret(); err != nil {
		return err
	}
	if in.creds, err = in.state.loadCredentials(in.conf.Workspace, in.conf.User); err != nil {
		return err
	}
	in.tokens.mountd, in.tokens.sandboxd = randomHex(32), randomHex(32)
	return writeTemplate(in.state.templateDir())
}

// orphansWithin is how long the processes of a killed up may take to end; they
// have been told when it died.
const orphansWithin = 20 * time.Second

// clearRemains removes what an up that was killed left: its processes, mounts
// and sockets. Its containers are sandboxd's affair, its files mountd's.
func (in *installation) clearRemains(context.Context) error {
	ended, err := endOrphans(in.state.runDir(), orphansWithin)
	if len(ended) > 0 {
		in.say("an earlier run was killed: ended its %s", strings.Join(ended, ", "))
	}
	if err != nil {
		return err
	}
	n, err := clearMounts(in.state.path)
	if n > 0 {
		in.say("an earlier run was killed: removed %d mounts", n)
	}
	if err != nil {
		return err
	}
	stale, err := filepath.Glob(filepath.Join(in.state.runDir(), "*.sock"))
	for _, name := range stale {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

func (in *installation) initSupervisor(context.Context) error {
	in.sup = newSupervisor(supervisorOptions{
		// The binary this process runs, also when the file has been replaced
		// meanwhile, and also where the gateway's user may not pass through
		// its directory.
		exe:        "/proc/self/exe",
		env:        childEnvironment(os.Environ()),
		runDir:     in.state.runDir(),
		logDir:     in.state.logDir(),
		logger:     in.log,
		backoffMin: 200 * time.Millisecond, backoffMax: 10 * time.Second, steady: 10 * time.Second,
	})
	return nil
}

// begin makes the first workspace, member, key and tokens.
func (in *installation) begin(ctx context.Context) error {
	client := in.mountsClient()
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := api.Begin(ctx, client, api.Beginning{
		Workspace:     berth.ID(in.creds.Workspace),
		User:          berth.ID(in.creds.User),
		KeyID:         berth.ID(in.creds.APIKeyID),
		OperatorToken: in.creds.OperatorToken,
		AdminToken:    in.creds.AdminToken,
		MemberToken:   in.creds.MemberToken,
		APIKey:        in.creds.APIKey,
	}, time.Now())
	if err != nil {
		return fmt.Errorf("cannot make the first workspace: %w", err)
	}
	return nil
}

// publish makes the running installation known to the commands on this machine.
func (in *installation) publish(context.Context) error {
	u, err := url.Parse(in.storeURL)
	if err != nil {
		return fmt.Errorf("cannot use the store's address: %w", err)
	}
	ctl := control{
		PID:       os.Getpid(),
		Mountd:    socketConf{in.state.mountdSocket(), in.tokens.mountd},
		Store:     storePlace{URL: in.storeURL, Endpoint: u.Host, Bucket: in.mountdConfig().Store.Bucket},
		URL:       in.gateway.URL,
		AppURL:    in.gateway.App,
		Workspace: in.creds.Workspace,
		User:      in.creds.User,
	}
	if in.conf.Sandboxes.Enabled {
		ctl.Sandboxd = &socketConf{in.state.sandboxdSocket(), in.tokens.sandboxd}
	}
	env := fmt.Sprintf("export BERTH_URL=%s BERTH_TOKEN=%s\n", in.gateway.URL, in.creds.MemberToken)
	if err := writeSecret(in.state.memberEnvFile(), []byte(env)); err != nil {
		return err
	}
	return writeControl(in.state.path, ctl)
}
