package mounts

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"berth"
)

// A ChangeStream delivers the changes of the file system. It is used by one
// goroutine. After an error it is only good for Close.
type ChangeStream struct {
	epoch  string
	body   io.ReadCloser
	lines  *bufio.Reader
	cancel context.CancelCauseFunc
	quiet  *time.Timer
}

// silence is how long mountd may send nothing before it counts as away.
const silence = 4 * idleTime

// Changes starts a stream of changes behind a sequence number of an epoch; with
// the epoch "" it begins now. Another epoch than mountd's, or a number that it
// cannot go back to, is ErrReset, at once or by Next. ctx bounds starting only.
func (c *Client) Changes(ctx context.Context, epoch string, since uint64) (*ChangeStream, error) {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	resp, err := c.post(life, pathChanges, changesMessage{epoch, since})
	if err != nil {
		cancel(err)
		return nil, err
	}
	s := &ChangeStream{body: resp.Body, lines: bufio.NewReader(resp.Body), cancel: cancel}
	s.quiet = time.AfterFunc(silence, func() { cancel(berth.ErrUnavailable) })
	first, err := s.read()
	if err != nil {
		s.Close()
		return nil, err
	}
	s.epoch = first.Epoch
	return s, nil
}

// Epoch names the run of the sequence numbers of the stream's changes.
func (s *ChangeStream) Epoch() string { return s.epoch }

// Next waits for changes, of which it returns at least one. ErrReset says that
// some were missed; berth.ErrUnavailable that mountd went away.
func (s *ChangeStream) Next(ctx context.Context) ([]berth.Change, error) {
	stop := context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
	defer stop()
	for {
		line, err := s.read()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("cannot read changes: %w", context.Cause(ctx))
		case err != nil:
			return nil, err
		case line.Reset:
			return nil, ErrReset
		case len(line.Changes) > 0:
			return line.Changes, nil
		}
	}
}

func (s *ChangeStream) read() (changesLine, error) {
	var line changesLine
	data, err := readLine(s.lines)
	if err != nil {
		return line, fmt.Errorf("cannot read changes: %v: %w", err, berth.ErrUnavailable)
	}
	s.quiet.Reset(silence)
	if err := json.Unmarshal(data, &line); err != nil {
		return line, fmt.Errorf("cannot read changes: %w", err)
	}
	return line, nil
}

// readLine reads one line of bounded length.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxAnswer {
			return nil, errors.New("a line is too long")
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// Close ends the stream.
func (s *ChangeStream) Close() error {
	s.quiet.Stop()
	s.cancel(context.Canceled)
	return s.body.Close()
}
