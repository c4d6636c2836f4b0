package mounts

import (
	"context"
	"errors"
	"net/http"
	"time"

	"berth"
	"berth/fusefs"
)

// idleTime is after how long a stream of changes sends an empty line.
const idleTime = 10 * time.Second

func (s *Server) attachTree(ctx context.Context, q treeMessage) (noneMessage, error) {
	t, err := berth.ParseTree(q.Tree)
	if err == nil {
		err = s.FileSystem.AttachTree(ctx, t, mountPoints(t)...)
	}
	return noneMessage{}, err
}

func (s *Server) removeTree(ctx context.Context, q treeMessage) (noneMessage, error) {
	t, err := berth.ParseTree(q.Tree)
	if err == nil {
		err = s.FileSystem.RemoveTree(ctx, t)
	}
	return noneMessage{}, err
}

func (s *Server) flush(ctx context.Context, q treeMessage) (noneMessage, error) {
	prefix := ""
	if q.Tree != "" {
		t, err := berth.ParseTree(q.Tree)
		if err != nil {
			return noneMessage{}, err
		}
		prefix = t.Prefix()
	}
	return noneMessage{}, s.FileSystem.Flush(ctx, prefix)
}

// A statusMessage is what Client.Status returns as JSON.
type statusMessage struct {
	FileSystem any  `json:"file_system"`
	Slots      int  `json:"slots"`
	Claimed    int  `json:"claimed"` // slots with a view
	IDMapped   bool `json:"id_mapped"`
	Records    int  `json:"records"`
}

func (s *Server) status(ctx context.Context, _ noneMessage) (statusMessage, error) {
	st := statusMessage{FileSystem: s.FileSystem.Status()}
	if s.Records != nil {
		st.Records = s.Records.count()
	}
	if s.Host == nil {
		return st, nil
	}
	infos, err := s.Host.Slots(ctx)
	st.Slots, st.IDMapped = len(infos), s.Host.IDMapped()
	for _, i := range infos {
		if i.View != nil {
			st.Claimed++
		}
	}
	return st, err
}

func (s *Server) getRecord(ctx context.Context, q recordMessage) (berth.Record, error) {
	return s.Records.Get(ctx, q.Key)
}

func (s *Server) putRecord(ctx context.Context, q berth.Record) (versionMessage, error) {
	version, err := s.Records.Put(ctx, q)
	return versionMessage{version}, err
}

func (s *Server) deleteRecord(ctx context.Context, q recordMessage) (noneMessage, error) {
	return noneMessage{}, s.Records.Delete(ctx, q.Key, q.Version)
}

func (s *Server) listRecords(_ context.Context, q listMessage) (recordsMessage, error) {
	recs, more, err := s.Records.listAfter(q.Prefix, q.After, listPageBytes)
	return recordsMessage{recs, more}, err
}

// changes sends what changes until the reader goes away or has missed some.
func (s *Server) changes(w http.ResponseWriter, r *http.Request) error {
	var q changesMessage
	if err := s.request(w, r, &q); err != nil {
		return err
	}
	since := q.Since
	if q.Epoch == "" {
		since = fusefs.FromNow
	}
	sub := s.FileSystem.Changes(since)
	if q.Epoch != "" && q.Epoch != sub.Epoch() {
		return ErrReset
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	line := changesLine{Epoch: sub.Epoch()}
	for {
		if err := sendLine(w, line); err != nil || line.Reset {
			return nil // the reader has gone, or must come again
		}
		line = changesLine{}
		wait, cancel := context.WithTimeout(r.Context(), idleTime)
		changes, err := sub.Next(wait)
		idle := wait.Err() != nil && r.Context().Err() == nil
		cancel()
		switch {
		case err == nil:
			line.Changes = changes
		case errors.Is(err, ErrReset):
			line.Reset = true
		case !idle:
			return nil // the end of this process, or of the reader
		}
	}
}

func sendLine(w http.ResponseWriter, line changesLine) error {
	data, err := encode(line)
	if err != nil {
		return err
	}
	control := http.NewResponseController(w)
	if _, err := (slowWriter{w, control}).Write(data); err != nil {
		return err
	}
	return control.Flush()
}
