package mounts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"

	"berth"
)

// A Client speaks with mountd. It can be used from many goroutines. Errors match
// what the method of Host, Records or the file system returned; while mountd is
// away they match berth.ErrUnavailable.
type Client struct {
	http     *http.Client
	token    string
	patience time.Duration // for which a request waits for a mountd that is started again
}

var _ berth.Records = (*Client)(nil)

// NewClient returns a client of the socket. It does not connect yet. A request
// that finds nobody there waits a moment, so that a restart of mountd is not
// seen by those who ask.
func NewClient(socket, token string) *Client {
	c := &Client{token: token, patience: 2 * time.Second}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, socket, c.patience)
		},
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}}
	return c
}

// dial connects to the socket, again and again until somebody listens there or
// the time is over.
func dial(ctx context.Context, socket string, within time.Duration) (net.Conn, error) {
	var dialer net.Dialer
	for deadline := time.Now().Add(within); ; {
		conn, err := dialer.DialContext(ctx, "unix", socket)
		nobody := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
		if !nobody || time.Now().After(deadline) {
			return conn, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// post sends a request and returns the answer if it is no error.
func (c *Client) post(ctx context.Context, path string, question any) (*http.Response, error) {
	data, err := encode(question)
	if err != nil {
		return nil, fmt.Errorf("cannot encode request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://mountd"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	if path != pathSlotsNew && path != pathRecordsPut && path != pathRecordsDelete && path != pathRestore {
		// Not sent. It lets the transport ask again when an idle connection turns
		// out to be of a mountd that died.
		req.Header["Idempotency-Key"] = []string{}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, away(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, away(ctx, err)
	}
	return nil, fromWire(resp.StatusCode, body)
}

// away makes an error of a connection that does not work: the caller's own
// reason if its context ended, else that mountd cannot be reached.
func away(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("cannot ask mountd: %w", context.Cause(ctx))
	}
	return fmt.Errorf("cannot reach mountd: %v: %w", err, berth.ErrUnavailable)
}

// do sends a request and decodes the answer.
func (c *Client) do(ctx context.Context, path string, question, answer any) error {
	resp, err := c.post(ctx, path, question)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return away(ctx, err)
	}
	if len(body) > maxAnswer {
		return fmt.Errorf("cannot read mountd's answer: it has more than %d bytes", maxAnswer)
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("cannot read mountd's answer: %w", err)
	}
	return nil
}

// NewSlot makes a slot with nothing mounted in it.
func (c *Client) NewSlot(ctx context.Context) (berth.ID, error) {
	var a slotMessage
	if err := c.do(ctx, pathSlotsNew, noneMessage{}, &a); err != nil {
		return "", err
	}
	return berth.ParseID("slot", a.Slot)
}

// MountView is Host.MountView.
func (c *Client) MountView(ctx context.Context, slot berth.ID, v berth.View) error {
	return c.do(ctx, pathSlotsMount, mountMessage{string(slot), v}, &noneMessage{})
}

// ReleaseSlot is Host.ReleaseSlot.
func (c *Client) ReleaseSlot(ctx context.Context, slot berth.ID) error {
	return c.do(ctx, pathSlotsRelease, slotMessage{string(slot)}, &noneMessage{})
}

// SlotInfos returns all slots, in the order of their ids.
func (c *Client) SlotInfos(ctx context.Context) ([]SlotInfo, error) {
	var a slotsMessage
	err := c.do(ctx, pathSlotsList, noneMessage{}, &a)
	return a.Slots, err
}

// Slots returns the ids of all slots, in order.
func (c *Client) Slots(ctx context.Context) ([]berth.ID, error) {
	infos, err := c.SlotInfos(ctx)
	ids := make([]berth.ID, 0, len(infos))
	for _, i := range infos {
		ids = append(ids, i.Slot)
	}
	return ids, err
}

// AttachTree makes the tree's files appear below STATE/view, under Tree.String.
func (c *Client) AttachTree(ctx context.Context, t berth.Tree) error {
	return c.do(ctx, pathTreesAttach, treeMessage{t.String()}, &noneMessage{})
}

// RemoveTree removes every object and cached file of the tree.
func (c *Client) RemoveTree(ctx context.Context, t berth.Tree) error {
	return c.do(ctx, pathTreesRemove, treeMessage{t.String()}, &noneMessage{})
}

// Flush returns when all that was written in a tree (Tree.String; "" = in all)
// before the call is in the bucket.
func (c *Client) Flush(ctx context.Context, tree string) error {
	return c.do(ctx, pathTreesFlush, treeMessage{tree}, &noneMessage{})
}

// Status tells of the file system, slots and records, for people: a JSON object
// whose member file_system is fusefs.Status.
func (c *Client) Status(ctx context.Context) (json.RawMessage, error) {
	var a json.RawMessage
	err := c.do(ctx, pathStatus, noneMessage{}, &a)
	return a, err
}
