package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// A client speaks with a gateway over its HTTP API, for the commands that are
// for callers: tool, events, files, keys.
type client struct {
	base  *url.URL
	token string
	http  *http.Client
}

const clientHelp = `
The gateway is named by BERTH_URL, such as http://127.0.0.1:8321, and the caller
by the token in BERTH_TOKEN.`

// newClient returns a client for what the environment names.
func newClient() (*client, error) {
	address, token := os.Getenv("BERTH_URL"), os.Getenv("BERTH_TOKEN")
	if address == "" {
		return nil, &usageError{errors.New("BERTH_URL is not set: it must name the gateway, such as http://127.0.0.1:8321")}
	}
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, &usageError{fmt.Errorf("BERTH_URL=%q is not an address, such as http://127.0.0.1:8321", address)}
	}
	if token == "" {
		return nil, &usageError{errors.New("BERTH_TOKEN is not set: it must hold the caller's token (`berth up` tells where the first ones are)")}
	}
	return &client{base: base, token: token, http: &http.Client{Transport: &http.Transport{
		DialContext:           dialLocalhost,
		ResponseHeaderTimeout: time.Hour, // a tool call answers when it is done
	}}}, nil
}

// dialLocalhost is a dialer that knows names below localhost, which most
// resolvers do not.
func dialLocalhost(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && strings.HasSuffix(host, ".localhost") {
		addr = net.JoinHostPort("localhost", port)
	}
	dialer := net.Dialer{Timeout: 10 * time.Second}
	return dialer.DialContext(ctx, network, addr)
}

// send makes a request of an escaped path. An answer that is no success is an
// error; the caller closes any other's body.
func (c *client) send(ctx context.Context, method, path string, body io.Reader, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.base.String(), "/")+path, body)
	if err != nil {
		return nil, fmt.Errorf("cannot make request: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if f, ok := body.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			r.ContentLength = info.Size() // so that what is too large is refused unsent
			r.Header.Set("Expect", "100-continue")
		}
	}
	res, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("cannot reach the gateway at %s (is `berth up` running, is BERTH_URL right?): %w", c.base, err)
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, readProblem(res)
}

// A problem is an error that the gateway answered.
type problem struct {
	status  int
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (p *problem) Error() string {
	switch p.status {
	case http.StatusUnauthorized:
		return p.Message + " (BERTH_TOKEN must hold a token of this gateway)"
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return p.Message + " (the same may succeed later)"
	}
	return p.Message
}

// readProblem returns the error in an answer.
func readProblem(res *http.Response) error {
	p := &problem{status: res.StatusCode}
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil || json.Unmarshal(body, p) != nil || p.Message == "" {
		return fmt.Errorf("the gateway answered %s without saying why; is BERTH_URL really berth's?", res.Status)
	}
	return p
}

// call sends a JSON body, unless that is nil, and decodes the JSON answer into
// out, unless that is nil.
func (c *client) call(ctx context.Context, method, path string, body, out any) error {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("cannot encode request: %w", err)
		}
		in = bytes.NewReader(text)
	}
	res, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return fmt.Errorf("cannot read the gateway's answer: %w", err)
	}
	return nil
}

// escapePath escapes each name of a path.
func escapePath(path string) string {
	names := strings.Split(path, "/")
	for i, name := range names {
		names[i] = url.PathEscape(name)
	}
	return strings.Join(names, "/")
}
