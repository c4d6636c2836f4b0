package mounts

import (
	"fmt"
	"os"
	"strings"
)

// A mountEntry is one line of /proc/self/mountinfo.
type mountEntry struct {
	point  string // without the mark that its directory was deleted
	shared bool
}

// mountsBelow returns the mounts at or below dir, each after those it is
// mounted on.
func mountsBelow(dir string) ([]mountEntry, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cannot list mounts: %w", err)
	}
	return parseMounts(string(data), dir), nil
}

func parseMounts(info, dir string) []mountEntry {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var found []mountEntry
	for line := range strings.Lines(info) {
		// ID parent major:minor root point options [optional...] - type source options
		head, _, ok := strings.Cut(line, " - ")
		fields := strings.Fields(head)
		if !ok || len(fields) < 6 {
			continue
		}
		m := mountEntry{point: strings.TrimSuffix(unescape.Replace(fields[4]), "//deleted")}
		for _, f := range fields[6:] {
			m.shared = m.shared || strings.HasPrefix(f, "shared:")
		}
		if m.point == dir || strings.HasPrefix(m.point, dir+"/") {
			found = append(found, m)
		}
	}
	return found
}
