package fusefs

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"berth"
)

// TestOpenBudget lets the machines of one tree not take what others need to open
// files.
func TestOpenBudget(t *testing.T) {
	const each = 10
	r := newRig(t, func(o *Options) {
		o.WholeBucket = false
		o.maxOpen = each * shareOfTree
	})
	ann, bob := berth.MemberTree("acme", "ann"), berth.MemberTree("acme", "bob")
	must(t, r.AttachTree(t.Context(), ann))
	must(t, r.AttachTree(t.Context(), bob))
	must(t, os.WriteFile(r.path("acme/members/ann/before"), []byte("x"), 0o644))
	eventually(t, "the file has settled", func() bool {
		r.opens.budget.mu.Lock()
		defer r.opens.budget.mu.Unlock()
		return r.opens.budget.all == 0
	})
	var open []*os.File
	for i := range each {
		f, err := os.Create(r.path(fmt.Sprint("acme/members/ann/f", i)))
		must(t, err)
		open = append(open, f)
	}
	again, err := os.Open(open[0].Name()) // takes nothing more
	must(t, err)
	again.Close()
	if _, err := os.Create(r.path("acme/members/ann/more")); !errors.Is(err, syscall.ENFILE) {
		t.Errorf("create of one file more: got %v, want ENFILE", err)
	}
	if _, err := os.Open(r.path("acme/members/ann/before")); !errors.Is(err, syscall.ENFILE) {
		t.Errorf("open of one file more: got %v, want ENFILE", err)
	}
	if err := os.WriteFile(r.path("acme/members/ann/before"), nil, 0o644); !errors.Is(err, syscall.ENFILE) {
		t.Errorf("truncation of one file more: got %v, want ENFILE", err)
	}
	if info, err := os.Stat(r.path("acme/members/ann/before")); err != nil || info.Size() != 1 {
		t.Errorf("the file that could not be opened to be truncated: got %v, %v", info, err)
	}
	if _, err := os.Stat(r.path("acme/members/ann/more")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file that could not be created: got %v", err)
	}
	must(t, os.WriteFile(r.path("acme/members/bob/f"), []byte("x"), 0o644))
	for _, f := range open {
		must(t, f.Close())
	}
	eventually(t, "all is given back", func() bool {
		r.opens.budget.mu.Lock()
		defer r.opens.budget.mu.Unlock()
		return r.opens.budget.all == 0 && len(r.opens.budget.byTree) == 0
	})
	must(t, os.WriteFile(r.path("acme/members/ann/more"), []byte("x"), 0o644))
}
