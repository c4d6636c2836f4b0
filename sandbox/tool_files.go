package sandbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"berth"
	"berth/sandbox/agent"
)

func parseRead(c Call, dir string) (tool, error) {
	var args struct {
		Path     string `json:"path"`
		Offset   int64  `json:"offset"`
		MaxBytes *int64 `json:"max_bytes"`
	}
	if err := decodeArgs(c, &args); err != nil {
		return nil, err
	}
	limit := int64(agent.MaxFile)
	if args.MaxBytes != nil {
		limit = *args.MaxBytes
	}
	if args.Offset < 0 || limit < 0 || limit > agent.MaxFile {
		return nil, invalid(c, "offset is %d and max_bytes %d, allowed are 0 and up, and 0 to %d", args.Offset, limit, agent.MaxFile)
	}
	if err := checkPath(c, args.Path); err != nil {
		return nil, err
	}
	return func(ctx context.Context, a *agentConn) (any, error) {
		ctx, cancel := fileContext(ctx)
		defer cancel()
		var r agent.ReadResult
		err := a.call(ctx, agent.PathRead, agent.ReadRequest{Dir: dir, Path: args.Path, Offset: args.Offset, Limit: limit}, &r, limit/3*4+4096)
		if err != nil {
			return nil, err
		}
		answer := struct {
			Content   *string `json:"content,omitempty"`
			Base64    *string `json:"content_base64,omitempty"`
			Size      int64   `json:"size"`
			Truncated bool    `json:"truncated"`
		}{Size: max(r.Size, 0)}
		content := r.Content[:min(int64(len(r.Content)), limit)]
		answer.Truncated = args.Offset+int64(len(content)) < answer.Size
		if isText(content) {
			s := string(content)
			answer.Content = &s
		} else {
			s := base64.StdEncoding.EncodeToString(content)
			answer.Base64 = &s
		}
		return answer, nil
	}, nil
}

// isText says whether bytes are better given as text: UTF-8 without control
// characters but the usual ones. JSON makes six bytes of an escape character:
// of large files those that hold too many are no text either.
func isText(p []byte) bool {
	escapes := 0
	for _, c := range p {
		switch {
		case c == '\x1b':
			escapes++
		case c < ' ' && !bytes.ContainsRune([]byte("\t\n\r\f\b"), rune(c)):
			return false
		}
	}
	return escapes <= max(64<<10, len(p)/8) && utf8.Valid(p)
}

func parseWrite(c Call, dir string) (tool, error) {
	var args struct {
		Path    string  `json:"path"`
		Content *string `json:"content"`
		Base64  *string `json:"content_base64"`
	}
	if err := decodeArgs(c, &args); err != nil {
		return nil, err
	}
	if err := checkPath(c, args.Path); err != nil {
		return nil, err
	}
	var content []byte
	switch {
	case (args.Content == nil) == (args.Base64 == nil):
		return nil, invalid(c, "give exactly one of content and content_base64")
	case args.Content != nil:
		content = []byte(*args.Content)
	default:
		var err error
		if content, err = base64.StdEncoding.DecodeString(*args.Base64); err != nil {
			return nil, invalid(c, "content_base64 is not base64: %v", err)
		}
	}
	if len(content) > agent.MaxFile {
		return nil, &agent.Error{Code: agent.CodeTooLarge, Message: fmt.Sprintf(
			"cannot write %q: %d bytes are more than the %d allowed", args.Path, len(content), agent.MaxFile)}
	}
	return func(ctx context.Context, a *agentConn) (any, error) {
		ctx, cancel := fileContext(ctx)
		defer cancel()
		var r agent.WriteResult
		err := a.call(ctx, agent.PathWrite, agent.WriteRequest{Dir: dir, Path: args.Path, Content: content}, &r, 4096)
		if err != nil {
			return nil, err
		}
		return struct {
			Size int64 `json:"size"`
		}{int64(len(content))}, nil
	}, nil
}

// fileEntry is one entry of list_files.
type fileEntry struct {
	Name       string    `json:"name"`
	NameBase64 string    `json:"name_base64,omitempty"` // of a name that is not UTF-8
	Kind       string    `json:"kind"`
	Size       int64     `json:"size"`
	Mtime      time.Time `json:"mtime"`
}

func parseList(c Call, dir string) (tool, error) {
	var args struct {
		Path  string `json:"path"`
		Limit *int   `json:"limit"`
	}
	if err := decodeArgs(c, &args); err != nil {
		return nil, err
	}
	if args.Path == "" {
		args.Path = "."
	}
	limit := defaultEntries
	if args.Limit != nil {
		limit = *args.Limit
	}
	if limit < 1 || limit > agent.MaxEntries {
		return nil, invalid(c, "limit is %d, allowed is 1 to %d", limit, agent.MaxEntries)
	}
	if err := checkPath(c, args.Path); err != nil {
		return nil, err
	}
	return func(ctx context.Context, a *agentConn) (any, error) {
		ctx, cancel := fileContext(ctx)
		defer cancel()
		r := listResult{Entries: entryList{most: limit}}
		if err := a.call(ctx, agent.PathList, agent.ListRequest{Dir: dir, Path: args.Path, Limit: limit}, &r, int64(limit)*512+4096); err != nil {
			return nil, err
		}
		answer := struct {
			Entries   []fileEntry `json:"entries"`
			Truncated bool        `json:"truncated"`
		}{make([]fileEntry, 0, len(r.Entries.all)), r.Truncated}
		for _, e := range r.Entries.all {
			answer.Entries = append(answer.Entries, listEntry(e))
		}
		return answer, nil
	}, nil
}

// listResult is an agent.ListResult with no more entries than were asked for.
type listResult struct {
	Entries   entryList `json:"entries"`
	Truncated bool      `json:"truncated"`
}

// An entryList decodes up to most entries. An empty one takes three bytes to
// send, but many more to keep: they are counted as they come.
type entryList struct {
	most int
	all  []agent.Entry
}

func (l *entryList) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if open, err := dec.Token(); err != nil || open != json.Delim('[') {
		return errors.New("the entries are no array")
	}
	for l.all = nil; dec.More(); {
		if len(l.all) == l.most {
			return fmt.Errorf("there are more than the %d entries that were asked for", l.most)
		}
		var e agent.Entry
		if err := dec.Decode(&e); err != nil {
			return err
		}
		l.all = append(l.all, e)
	}
	return nil
}

func listEntry(e agent.Entry) fileEntry {
	out := fileEntry{Name: string(e.Name), Size: max(e.Size, 0), Mtime: time.Unix(0, e.MtimeNS).UTC(), Kind: string(berth.KindOther)}
	switch berth.FileKind(e.Kind) {
	case berth.KindFile, berth.KindDir, berth.KindSymlink:
		out.Kind = e.Kind
	}
	if !utf8.Valid(e.Name) {
		out.Name = strings.ToValidUTF8(out.Name, "\uFFFD")
		out.NameBase64 = base64.StdEncoding.EncodeToString(e.Name)
	}
	return out
}

func checkPath(c Call, path string) error {
	switch {
	case path == "":
		return invalid(c, "path is empty")
	case len(path) > agent.MaxPathName:
		return invalid(c, "path has %d bytes, at most %d are allowed", len(path), agent.MaxPathName)
	case strings.ContainsRune(path, 0):
		return invalid(c, "path has a NUL byte")
	}
	return nil
}

func fileContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, fileTimeout, fmt.Errorf("the agent did not answer in time: %w", berth.ErrUnavailable))
}
