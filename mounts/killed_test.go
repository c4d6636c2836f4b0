package mounts

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"berth"
	"berth/fusefs/object/mem"
)

var claimKills = flag.Int("claimkills", 12, "how often TestKilledWhileMounting kills")

// serveClaims mounts and releases views in four goroutines until it is killed.
func serveClaims(state string) error {
	h, _, err := startFUSE(state, new(mem.Store))
	if err != nil {
		return err
	}
	fmt.Println("up")
	var claimers sync.WaitGroup
	for w := range 4 {
		claimers.Go(func() {
			for i := 0; ; i++ {
				v := memberView
				v.Machine = berth.ID(fmt.Sprintf("i%d-%d-%d", os.Getpid(), w, i))
				v.User = v.Machine
				id, err := h.NewSlot(context.Background())
				if err == nil {
					err = h.MountView(context.Background(), id, v)
				}
				if err == nil {
					err = h.ReleaseSlot(context.Background(), id)
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
			}
		})
	}
	claimers.Wait()
	return nil
}

// TestKilledWhileMounting kills a host while it uses its own mount: it ends, and
// the next one takes over.
func TestKilledWhileMounting(t *testing.T) {
	state := t.TempDir()
	for i := range *claimKills {
		run := startHelper(t, rerun(roleClaims, state))
		want(t, "the host", run.answer(), "up")
		time.Sleep(time.Duration(30+i*7%60) * time.Millisecond) // somewhere in the middle of it
		ended := make(chan struct{})
		go func() {
			run.kill()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Fatalf("kill %d: process %d does not end", i, run.cmd.Process.Pid)
		}
	}
	newFUSE(t, state, new(mem.Store))
}
