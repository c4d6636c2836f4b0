package mounts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth"
	"berth/fusefs/object"
)

// hostile are what an attacker would put in place of an id.
var hostile = []string{
	"", ".", "..", "/", "//", "/etc", "../../../../etc/passwd", "acme/..", "a/../..", "a/./b", ".berth", ".hidden",
	"a\x00b", "a\nb", "a b", "ü", "\xff\xfe", "💥", "%2e%2e", "..%2f", "a\\..\\b", "shared", "acme/shared", "acme/shared/..",
	"/proc/self/root", "slots", "fs", "view", "-o", "bind,suid", "${HOME}", "$(id)", "`id`", "';--",
	strings.Repeat("x", 129), strings.Repeat("x/", 3000), strings.Repeat("../", 1000),
	"s1", "i1", "acme", "acme/members/ann", "acme/end_users/e/session-roots/c", "acme/machines/m",
}

// A mutator makes documents that resemble valid ones.
type mutator struct {
	r     *rand.Rand
	slots []string // that exist
}

// value returns something hostile, or something valid.
func (m *mutator) value() any {
	switch m.r.IntN(12) {
	case 0:
		return m.r.Uint64()
	case 1:
		return -1
	case 2:
		return 1e300
	case 3:
		return nil
	case 4:
		return m.r.IntN(2) == 0
	case 5:
		return []any{m.text(), m.text()}
	case 6:
		return map[string]any{m.text(): m.text()}
	case 7:
		return json.RawMessage(strings.Repeat("[", 2000) + strings.Repeat("]", 2000))
	}
	return m.text()
}

func (m *mutator) text() string {
	if m.r.IntN(4) == 0 && len(m.slots) > 0 {
		return m.slots[m.r.IntN(len(m.slots))]
	}
	return hostile[m.r.IntN(len(hostile))]
}

// document takes a valid document and changes some members, in depth.
func (m *mutator) document(valid any) any {
	if obj, ok := valid.(map[string]any); ok {
		out := make(map[string]any)
		for k, v := range obj {
			switch m.r.IntN(5) {
			case 0:
				out[k] = m.value()
			case 1:
				out[k] = m.document(v)
			case 2: // left out
			default:
				out[k] = v
			}
		}
		if m.r.IntN(10) == 0 {
			out[m.text()] = m.value()
		}
		return out
	}
	return m.value()
}

var validDocuments = map[string]string{
	pathSlotsNew:      `{}`,
	pathSlotsMount:    `{"slot":"SLOT","view":{"workspace":"acme","machine":"i1","chat":"c1","user":"ann","end_user":"","experts":["profy"]}}`,
	pathSlotsRelease:  `{"slot":"SLOT"}`,
	pathSlotsList:     `{}`,
	pathTreesAttach:   `{"tree":"acme/members/ann"}`,
	pathTreesRemove:   `{"tree":"acme/members/ann"}`,
	pathTreesFlush:    `{"tree":"acme/members/ann"}`,
	pathCheckpoint:    `{"trees":["acme/members/ann"]}`,
	pathBefore:        `{"tree":"acme/members/ann","path":"f","checkpoint":1}`,
	pathSince:         `{"tree":"acme/members/ann","checkpoint":1}`,
	pathVersions:      `{"tree":"acme/members/ann","path":"f"}`,
	pathVersion:       `{"tree":"acme/members/ann","path":"f","version":"0000000000000001-gw.1o"}`,
	pathRestore:       `{"tree":"acme/members/ann","path":"f","version":"0000000000000001-gw.1o"}`,
	pathDeleted:       `{"tree":"acme/members/ann","path":"d"}`,
	pathChanges:       `{"epoch":"none","since":1}`,
	pathStatus:        `{}`,
	pathRecordsGet:    `{"key":"chats/acme/members/ann/c1","version":""}`,
	pathRecordsList:   `{"prefix":"chats/","after":""}`,
	pathRecordsPut:    `{"key":"chats/acme/members/ann/c1","version":"","value":{"a":1}}`,
	pathRecordsDelete: `{"key":"chats/acme/members/ann/c1","version":"x"}`,
}

// TestHostileRequests sends what somebody who has the token could send, and
// then looks at all that the server can reach.
func TestHostileRequests(t *testing.T) {
	in := newInstallation(t)
	state := in.host.opts.State
	outside := treeOf(t, filepath.Dir(state), state)
	if len(validDocuments) != len((&Server{Host: in.host, Records: new(Records)}).routes()) {
		t.Fatal("a request is missing in validDocuments")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := &mutator{r: rand.New(rand.NewPCG(seed, 0))}
	paths := make([]string, 0, len(validDocuments))
	for p := range validDocuments {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	counts := make(map[int]int)
	for range 3000 {
		ids, err := in.client.Slots(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.slots = m.slots[:0]
		for _, id := range ids {
			m.slots = append(m.slots, string(id))
		}
		path := paths[m.r.IntN(len(paths))]
		if path == pathSlotsNew && len(ids) > 5 {
			continue
		}
		text := validDocuments[path]
		if len(ids) > 0 {
			text = strings.ReplaceAll(text, "SLOT", string(ids[m.r.IntN(len(ids))]))
		}
		var valid any
		json.Unmarshal([]byte(text), &valid)
		body, err := json.Marshal(m.document(valid))
		if err != nil {
			continue
		}
		if m.r.IntN(10) == 0 && len(body) > 1 {
			body = body[:m.r.IntN(len(body))]
		}
		if path == pathChanges && !bytes.Contains(body, []byte(`"none"`)) {
			continue // would be a stream
		}
		status, answer := rawRequest(t, in, path, bytes.NewReader(body))
		counts[status]++
		switch status {
		case 200, 400, 404, 409, 410:
		default:
			t.Errorf("%s %.300s: got status %d %s", path, body, status, answer)
		}
	}
	if counts[200] == 0 || counts[400] == 0 {
		t.Errorf("got %v: the requests are all of one kind", counts)
	}
	if got := treeOf(t, filepath.Dir(state), state); got != outside {
		t.Errorf("something changed beside the state directory: got %s, want %s", got, outside)
	}
	checkReach(t, in)
}

// checkReach looks whether all that is there is of the scheme.
func checkReach(t *testing.T, in *installation) {
	t.Helper()
	state := in.host.opts.State
	mounts, err := mountsBelow("/")
	if err != nil {
		t.Fatal(err)
	}
	slotsDir := filepath.Join(state, slotsName)
	for _, m := range mounts {
		below, ok := strings.CutPrefix(m.point, slotsDir+"/")
		if !ok {
			continue
		}
		id, rest, _ := strings.Cut(below, "/")
		if _, err := berth.ParseID("slot", id); err != nil || rest != homeUser && !strings.HasPrefix(rest, homeUser+"/") {
			t.Errorf("a mount outside the scheme: %s", m.point)
		}
	}
	entries, err := os.ReadDir(state)
	if err != nil {
		t.Fatal(err)
	}
	known := []string{fsName, viewName, slotsName, stageName, journalName, lockName, "records", "m.sock"}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			t.Errorf("something new in the state directory: %s", e.Name())
		}
	}
	page, err := in.store.List(t.Context(), object.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range page.Objects {
		key, ok := strings.CutPrefix(o.Key, recordPrefix)
		if !ok || checkRecordKey(strings.TrimSuffix(key, recordSuffix)) != nil {
			t.Errorf("an object outside the scheme: %q", o.Key)
		}
	}
	workspaces, err := os.ReadDir(in.host.FSDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range workspaces {
		if _, err := berth.ParseID("workspace", w.Name()); err != nil {
			t.Errorf("a tree outside the scheme: %v", err)
		}
	}
}

// treeOf lists a directory but what is below skip.
func treeOf(t *testing.T, dir, skip string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if name == skip {
			return filepath.SkipDir
		}
		names = append(names, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(names)
}
