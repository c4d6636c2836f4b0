package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"berth"
)

// A Client is the provider that sandboxd offers on its socket.
type Client struct {
	http  *http.Client
	token string
}

// NewClient returns a client. Nothing is dialled yet.
func NewClient(socket, token string) *Client {
	return &Client{token: token, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		MaxIdleConns: 8, MaxIdleConnsPerHost: 8,
	}}}
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Info implements Provider.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var out Info
	return out, c.do(ctx, http.MethodGet, "/v1/info", nil, &out)
}

// Create implements Provider.
func (c *Client) Create(ctx context.Context, slot berth.ID) (Container, error) {
	var out Container
	return out, c.do(ctx, http.MethodPost, "/v1/containers", createRequest{string(slot)}, &out)
}

// List implements Provider.
func (c *Client) List(ctx context.Context) ([]Container, error) {
	var out []Container
	return out, c.do(ctx, http.MethodGet, "/v1/containers", nil, &out)
}

// Stats implements Provider.
func (c *Client) Stats(ctx context.Context, slot berth.ID) (Stats, error) {
	var out Stats
	return out, c.do(ctx, http.MethodGet, "/v1/containers/"+string(slot)+"/stats", nil, &out)
}

// Destroy implements Provider.
func (c *Client) Destroy(ctx context.Context, slot berth.ID) error {
	return c.do(ctx, http.MethodDelete, "/v1/containers/"+string(slot), nil, &struct{}{})
}

// do sends one request. Errors match what the provider's did.
func (c *Client) do(ctx context.Context, method, path string, question, answer any) error {
	var body io.Reader
	if question != nil {
		data, err := json.Marshal(question)
		if err != nil {
			return fmt.Errorf("cannot encode request to sandboxd: %w", err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://sandboxd"+path, body)
	if err != nil {
		return fmt.Errorf("cannot make request to sandboxd: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("cannot ask sandboxd: %w", context.Cause(ctx))
		}
		return fmt.Errorf("cannot ask sandboxd: %v: %w", err, berth.ErrUnavailable)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("cannot read sandboxd's answer: %v: %w", err, berth.ErrUnavailable)
	case len(data) > maxAnswer:
		return fmt.Errorf("cannot read sandboxd's answer: more than %d bytes", maxAnswer)
	case res.StatusCode != http.StatusOK:
		return wireFailure(res.StatusCode, data)
	}
	if err := decodeStrict(data, answer); err != nil {
		return fmt.Errorf("cannot decode sandboxd's answer: %w", err)
	}
	return nil
}

// wireFailure turns an error answer back into an error.
func wireFailure(status int, data []byte) error {
	var e wireError
	if err := decodeStrict(data, &e); err != nil {
		return fmt.Errorf("cannot decode sandboxd's answer of status %d: %w", status, err)
	}
	for _, c := range wireCodes {
		if e.Code == c.code {
			return &remoteError{e.Message, c.err}
		}
	}
	return errors.New(e.Message)
}

// remoteError is an error of the other process with its kind.
type remoteError struct {
	message string
	kind    error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.kind }
