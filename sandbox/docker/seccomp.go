package docker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// socketFamilies are the only families of sockets that a machine can open.
var socketFamilies = [...]uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// denied are system calls that no rule of berth's profile allows, whatever the
// default profile of the engine's makers comes to allow.
func denied(name string) bool {
	switch name {
	case "socket", "socketcall", "keyctl", "add_key", "request_key", "userfaultfd", "bpf", "perf_event_open",
		"mount", "umount", "umount2", "move_mount", "open_tree", "fsopen", "fsmount", "fsconfig", "fspick",
		"mount_setattr", "pivot_root", "setns", "unshare", "open_by_handle_at":
		return true
	}
	return strings.HasPrefix(name, "io_uring_")
}

// profile returns berth's seccomp profile in the form that the engine takes:
// Docker's default less io_uring, key rings, name spaces, every socket family
// but socketFamilies, and the 32-bit entries of the kernel. Rules for
// capabilities stay without effect, since a machine has none.
func profile() (string, error) {
	p := seccomp.DefaultProfile()
	var rules []*seccomp.Syscall
	for _, rule := range p.Syscalls {
		if rule.Action == specs.ActAllow {
			rule.Names = slices.DeleteFunc(slices.Clone(rule.Names), denied)
		}
		if len(rule.Names) > 0 {
			rules = append(rules, rule)
		}
	}
	for _, family := range socketFamilies {
		rules = append(rules, &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{
			Names: []string{"socket"}, Action: specs.ActAllow,
			Args: []specs.LinuxSeccompArg{{Index: 0, Value: family, Op: specs.OpEqualTo}},
		}})
	}
	p.Syscalls = rules
	// libseccomp turns a rule for socket into one for socketcall on 32-bit x86,
	// whose family a filter cannot see. Without that entry there is no such hole;
	// a process that uses it is killed.
	for i := range p.ArchMap {
		p.ArchMap[i].SubArches = nil
	}
	text, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("cannot encode seccomp profile: %w", err)
	}
	return string(text), nil
}
