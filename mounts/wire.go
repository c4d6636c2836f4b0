package mounts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"syscall"

	"berth"
)

// The socket speaks HTTP/1.1. Every request is a POST of one JSON document,
// which holds ids and nothing that is used as a path, an option or a place on
// this host. Answers are one JSON document too, save some streams: contents (raw
// bytes) and changes (lines of JSON).
const (
	pathSlotsNew      = "/v1/slots/new"
	pathSlotsMount    = "/v1/slots/mount"
	pathSlotsRelease  = "/v1/slots/release"
	pathSlotsList     = "/v1/slots/list"
	pathTreesAttach   = "/v1/trees/attach"
	pathTreesRemove   = "/v1/trees/remove"
	pathTreesFlush    = "/v1/trees/flush"
	pathCheckpoint    = "/v1/history/checkpoint"
	pathBefore        = "/v1/history/before"
	pathSince         = "/v1/history/since"
	pathVersions      = "/v1/history/versions"
	pathVersion       = "/v1/history/version"
	pathRestore       = "/v1/history/restore"
	pathDeleted       = "/v1/history/deleted"
	pathChanges       = "/v1/changes"
	pathStatus        = "/v1/status"
	pathRecordsGet    = "/v1/records/get"
	pathRecordsList   = "/v1/records/list"
	pathRecordsPut    = "/v1/records/put"
	pathRecordsDelete = "/v1/records/delete"
)

const (
	maxRequest    = berth.MaxRecord + 64<<10 // bytes of a request
	maxAnswer     = 16 << 20                 // bytes of an answer, or of one line of changes
	listPageBytes = 1 << 20                  // of records in one answer, and one record more
	maxTrees      = 256                      // in one checkpoint
	maxPath       = 4096                     // bytes of a file's path in its tree
)

// The documents of requests and answers.
type (
	noneMessage struct{}
	slotMessage struct {
		Slot string `json:"slot"`
	}
	mountMessage struct {
		Slot string     `json:"slot"`
		View berth.View `json:"view"`
	}
	slotsMessage struct {
		Slots []SlotInfo `json:"slots"`
	}
	treeMessage struct {
		Tree string `json:"tree"` // for flush "" is everything
	}
	treesMessage struct {
		Trees []string `json:"trees"`
	}
	checkpointMessage struct {
		Checkpoint uint64 `json:"checkpoint"`
	}
	beforeMessage struct {
		Tree       string `json:"tree"`
		Path       string `json:"path"`
		Checkpoint uint64 `json:"checkpoint"`
	}
	sinceMessage struct {
		Tree       string `json:"tree"` // of these "" is the whole bucket
		Checkpoint uint64 `json:"checkpoint"`
	}
	pathChangesMessage struct {
		Changes []berth.PathChange `json:"changes"`
		More    bool               `json:"more,omitempty"`
	}
	pathMessage struct {
		Tree string `json:"tree"`
		Path string `json:"path"`
	}
	pathVersionMessage struct {
		Tree    string `json:"tree"`
		Path    string `json:"path"`
		Version string `json:"version"`
	}
	versionsMessage struct {
		Versions []berth.Version `json:"versions"`
	}
	deletedMessage struct {
		Files []berth.DeletedFile `json:"files"`
		More  bool                `json:"more,omitempty"`
	}
	changesMessage struct {
		Epoch string `json:"epoch"` // "" = from now on
		Since uint64 `json:"since"`
	}
	recordMessage struct {
		Key     string `json:"key"`
		Version string `json:"version,omitempty"`
	}
	listMessage struct {
		Prefix string `json:"prefix"`
		After  string `json:"after,omitempty"`
	}
	recordsMessage struct {
		Records []berth.Record `json:"records"`
		More    bool           `json:"more,omitempty"`
	}
	versionMessage struct {
		Version string `json:"version"`
	}

	// changesLine is one line of the stream of changes: first the epoch, then
	// changes or, when there are none for a while, nothing, and at the end that
	// some were missed.
	changesLine struct {
		Epoch   string         `json:"epoch,omitempty"`
		Changes []berth.Change `json:"changes,omitempty"`
		Reset   bool           `json:"reset,omitempty"`
	}

	errorMessage struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
)

// wireErrors is the one table between errors, their codes and HTTP statuses. Of
// an error that matches several lines the first counts.
var wireErrors = []struct {
	code   string
	status int
	err    error
}{
	{"conflict", http.StatusConflict, berth.ErrConflict},
	{"unavailable", http.StatusServiceUnavailable, berth.ErrUnavailable},
	{"not_found", http.StatusNotFound, fs.ErrNotExist},
	{"exists", http.StatusConflict, fs.ErrExist},
	{"invalid", http.StatusBadRequest, fs.ErrInvalid},
	{"permission", http.StatusForbidden, fs.ErrPermission},
	{"reset", http.StatusGone, ErrReset},
	{"not_kept", http.StatusGone, ErrNotKept},
	{"quota", http.StatusInsufficientStorage, syscall.EDQUOT},
	{"full", http.StatusInsufficientStorage, syscall.ENOSPC},
}

// toWire returns the status and message for an error; known is false for one
// that is not in the table.
func toWire(err error) (status int, msg errorMessage, known bool) {
	for _, w := range wireErrors {
		if errors.Is(err, w.err) {
			return w.status, errorMessage{w.code, err.Error()}, true
		}
	}
	return http.StatusInternalServerError, errorMessage{"internal", err.Error()}, false
}

// A remoteError is an error of mountd as the client returns it.
type remoteError struct {
	message string
	kind    error // of the table; nil = none
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.kind }

// fromWire makes the error of an answer.
func fromWire(status int, body []byte) error {
	var msg errorMessage
	if json.Unmarshal(body, &msg) != nil || msg.Message == "" {
		return fmt.Errorf("mountd answered with status %d: %w", status, berth.ErrUnavailable)
	}
	for _, w := range wireErrors {
		if w.code == msg.Code {
			return &remoteError{msg.Message, w.err}
		}
	}
	return &remoteError{msg.Message, nil}
}

// encode returns v as one line of JSON. Unlike json.Marshal it leaves raw JSON as
// long as it is.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return buf.Bytes(), err
}

// decode reads one JSON document of a known form and nothing more.
func decode(r io.Reader, into any) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("cannot read request: %v: %w", err, fs.ErrInvalid)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("cannot decode request: %v: %w", err, fs.ErrInvalid)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("cannot decode request: more follows after the document: %w", fs.ErrInvalid)
	}
	return nil
}

// checkPath checks the path of a file below a tree's root.
func checkPath(path string) error {
	bad := path == "" || len(path) > maxPath || strings.ContainsRune(path, 0)
	for part := range strings.SplitSeq(path, "/") {
		bad = bad || part == "" || part == "." || part == ".."
	}
	if bad {
		return fmt.Errorf("invalid path %.200q in a tree: %w", path, fs.ErrInvalid)
	}
	return nil
}

// parseTrees parses the names of a checkpoint's trees.
func parseTrees(names []string) ([]berth.Tree, error) {
	if len(names) == 0 || len(names) > maxTrees {
		return nil, fmt.Errorf("invalid checkpoint of %d trees, it needs 1 to %d: %w", len(names), maxTrees, fs.ErrInvalid)
	}
	trees := make([]berth.Tree, len(names))
	for i, name := range names {
		var err error
		if trees[i], err = parseTree(name); err != nil {
			return nil, err
		}
	}
	return trees, nil
}

// mountPoints returns the directories below a tree's root that views mount
// something on, whatever the view.
func mountPoints(t berth.Tree) []string {
	switch t.Kind {
	case berth.MemberDisk:
		return []string{berth.ReservedExpert}
	case berth.MachineHome:
		return []string{"project", "workspace"}
	}
	return nil
}
