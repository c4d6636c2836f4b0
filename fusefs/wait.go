package fusefs

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"berth"
	"berth/fusefs/index"
)

const (
	storeWait = 90 * time.Second // a request that needs the store ends in EIO after it
	killPoll  = 100 * time.Millisecond
)

// A caller is who waits for the answer of a request. The zero caller is this
// process.
type caller struct {
	cancel <-chan struct{} // closed when the caller got a signal, whichever
	tid    uint32          // 0 when it is in another pid namespace
}

func callerOf(cancel <-chan struct{}, h *fuse.InHeader) caller { return caller{cancel, h.Caller.Pid} }

// store runs the part of a request that waits for the store. Signals do not end
// it, except one that is killing the caller: then it is errKilled at once. A store
// that has just gone away is waited for.
func (f *FS) store(c caller, what string, ino index.Ino, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(f.ctx, cmp.Or(f.opts.storeWait, storeWait))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watchKill(ctx, stop)
	}()
	err := do(ctx)
	for tries := 0; errors.Is(err, berth.ErrUnavailable) && f.sync.Bridge(ctx, tries); tries++ {
		err = do(ctx)
	}
	killed := context.Cause(ctx) == errKilled
	stop(context.Canceled)
	<-watched
	switch {
	case err == nil:
		return nil
	case killed:
		return errKilled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("cannot %s inode %d: %v: %w", what, ino, err, berth.ErrUnavailable)
	}
	return fmt.Errorf("cannot %s inode %d: %w", what, ino, err)
}

// watchKill ends the context when the caller has SIGKILL pending. The kernel
// tells of the first signal only, so that after it this has to be looked up.
func (c caller) watchKill(ctx context.Context, stop context.CancelCauseFunc) {
	select {
	case <-ctx.Done():
		return
	case <-c.cancel:
	}
	tick := time.NewTicker(killPoll)
	defer tick.Stop()
	for {
		if killPending(c.tid) {
			stop(errKilled)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// killPending says whether SIGKILL waits for a thread or its process.
func killPending(tid uint32) bool {
	file, err := os.Open("/proc/" + strconv.FormatUint(uint64(tid), 10) + "/status")
	if err != nil {
		return false // of another pid namespace, or we may not look
	}
	defer file.Close()
	for s := bufio.NewScanner(file); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), ":")
		if key != "SigPnd" && key != "ShdPnd" {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err == nil && bits&(1<<8) != 0 { // SIGKILL is signal 9
			return true
		}
	}
	return false
}
