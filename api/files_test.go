package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth"
)

func (g *gateway) list(token, path string) []entryAnswer {
	g.t.Helper()
	var page listingAnswer
	g.do(token, "GET", path, "").ok(200, &page)
	return page.Entries
}

func names(entries []entryAnswer) string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Name)
	}
	return strings.Join(out, " ")
}

func TestFiles(t *testing.T) {
	g := newGateway(t, nil)
	const file = "/v1/files/me/a/b.txt"
	a := g.do(g.ann, "PUT", file, "hello").ok(201, nil)
	tag := a.header.Get("ETag")
	a = g.do(g.ann, "GET", file, "").ok(200, nil)
	if a.body != "hello" || a.header.Get("ETag") != tag || tag == "" || a.header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("got %q, %v", a.body, a.header)
	}
	g.do(g.ann, "GET", file, "", "If-None-Match", tag).ok(304, nil)
	if got := g.do(g.ann, "GET", file, "", "Range", "bytes=1-2").ok(206, nil); got.body != "el" || got.header.Get("Content-Range") != "bytes 1-2/5" {
		t.Errorf("range: %q %v", got.body, got.header)
	}
	g.do(g.ann, "GET", file, "", "Range", "bytes=9-").ok(416, nil)
	if got := g.do(g.ann, "HEAD", file, "").ok(200, nil); got.body != "" || got.header.Get("Content-Length") != "5" {
		t.Errorf("HEAD: %q %v", got.body, got.header)
	}
	g.do(g.ann, "HEAD", "/v1/files/me/none", "").ok(404, nil)
	a = g.do(g.ann, "PUT", file, "hello again").ok(200, nil)
	if a.header.Get("ETag") == tag {
		t.Error("the ETag did not change with the content")
	}
	g.do(g.ann, "PUT", file, "x", "If-Match", tag).refused(412, "conflict", "b.txt")
	g.do(g.ann, "PUT", file, "x", "If-Match", a.header.Get("ETag")).ok(200, nil)
	g.do(g.ann, "PUT", file, "x", "If-None-Match", "*").refused(412, "conflict")
	if got := names(g.list(g.ann, "/v1/files/me/a/")); got != "b.txt" {
		t.Errorf("the directory has %q, want no temporary file", got)
	}
	g.do(g.ann, "PUT", "/v1/files/me/a", "x").refused(409, "conflict", "a")
	g.do(g.ann, "PUT", "/v1/files/me/a/b.txt/c", "x").refused(409, "conflict")
	g.do(g.ann, "GET", "/v1/files/me/a/b.txt/", "").refused(409, "conflict", "not a directory")
	g.do(g.ann, "GET", "/v1/files/me/none", "").refused(404, "not_found", "none")
}

func TestDirectories(t *testing.T) {
	g := newGateway(t, nil)
	g.do(g.ann, "PUT", "/v1/files/me/d/e/", "").ok(201, nil)
	g.do(g.ann, "PUT", "/v1/files/me/d/e/", "").ok(200, nil)
	g.write(annDisk, "d/f", "12345")
	if err := os.Symlink("../somewhere", g.disk(annDisk, "d/link")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/v1/files/me/d", "/v1/files/me/d/", "/v1/files/me/d?list=1"} {
		entries := g.list(g.ann, p)
		if got := names(entries); got != "e f link" {
			t.Fatalf("GET %s: %q", p, got)
		}
		f, link := entries[1], entries[2]
		if entries[0].Kind != "dir" || f.Kind != "file" || f.Size != 5 || f.Mode != "0644" || f.MTime.IsZero() {
			t.Errorf("got %+v", entries)
		}
		if link.Kind != "symlink" || link.Target != "../somewhere" {
			t.Errorf("got %+v", link)
		}
	}
	g.do(g.ann, "PUT", "/v1/files/me/d/f/", "").refused(409, "conflict")
	g.do(g.ann, "DELETE", "/v1/files/me/d", "").refused(409, "conflict", "recursive=1")
	g.do(g.ann, "DELETE", "/v1/files/me/d/f", "").ok(204, nil)
	g.do(g.ann, "DELETE", "/v1/files/me/d/f", "").refused(404, "not_found", "f")
	g.do(g.ann, "DELETE", "/v1/files/me/d?recursive=1", "").ok(204, nil)
	g.do(g.ann, "GET", "/v1/files/me/d", "").refused(404, "not_found")
	g.do(g.ann, "DELETE", "/v1/files/me/d?recursive=1", "").refused(404, "not_found")
	g.do(g.ann, "DELETE", "/v1/files/me/", "").refused(409, "conflict", "root")
	g.do(g.ann, "DELETE", "/v1/files/me?recursive=1", "").refused(409, "conflict", "root")
}

func TestMove(t *testing.T) {
	g := newGateway(t, nil)
	g.do(g.ann, "PUT", "/v1/files/me/a", "A").ok(201, nil)
	g.do(g.ann, "PUT", "/v1/files/me/b", "B").ok(201, nil)
	g.do(g.ann, "POST", "/v1/files/me/a?move_to=b", "").refused(409, "conflict", "overwrite=1", "b")
	g.do(g.ann, "POST", "/v1/files/me/a?move_to=x/y/c", "").ok(200, nil)
	g.do(g.ann, "POST", "/v1/files/me/x/y/c?move_to=/b&overwrite=1", "").ok(200, nil)
	if got := g.do(g.ann, "GET", "/v1/files/me/b", "").ok(200, nil).body; got != "A" {
		t.Errorf("b is %q, want A", got)
	}
	g.do(g.ann, "POST", "/v1/files/me/none?move_to=c", "").refused(404, "not_found", "none")
	for _, to := range []string{"", "../c", "a//b", ".", "a%00"} {
		g.do(g.ann, "POST", "/v1/files/me/b?move_to="+to, "").refused(400, "invalid")
	}
	g.do(g.ann, "POST", "/v1/files/me/x?move_to=x/y/z", "").refused(400, "invalid", "x")
	g.do(g.ann, "POST", "/v1/files/me/b?move_to=shared/b", "").refused(409, "conflict", "b")
	g.do(g.ann, "PUT", "/v1/files/shared/s", "S").ok(201, nil)
	g.do(g.ann, "POST", "/v1/files/me/shared/s?move_to=d/s", "").refused(409, "conflict")
	g.do(g.ann, "POST", "/v1/files/me/shared/s?move_to=shared/d/s", "").ok(200, nil)
	g.do(g.ann, "GET", "/v1/files/shared/d/s", "").ok(200, nil)
}

func TestAreas(t *testing.T) {
	g := newGateway(t, nil)
	bob := g.member("bob")
	g.do(g.ann, "PUT", "/v1/files/shared/s", "ours").ok(201, nil)
	for _, p := range []string{"/v1/files/shared/s", "/v1/files/me/shared/s"} {
		if got := g.do(bob, "GET", p, "").ok(200, nil).body; got != "ours" {
			t.Errorf("GET %s as another member: %q", p, got)
		}
	}
	g.do(g.ann, "PUT", "/v1/files/me/f", "mine").ok(201, nil)
	g.do(bob, "GET", "/v1/files/me/f", "").refused(404, "not_found", "f")

	g.do(g.ann, "PUT", "/v1/chats/c", "{}").ok(200, nil)
	if entries := g.list(g.ann, "/v1/files/chats/c/"); len(entries) != 0 {
		t.Errorf("a new chat has the files %v", entries)
	}
	g.do(g.ann, "PUT", "/v1/files/chats/c/f", "profy's").ok(201, nil)
	g.do(g.ann, "PUT", "/v1/files/chats/c/f?expert=critic", "critic's").ok(201, nil)
	for p, want := range map[string]string{"profy/c/f": "profy's", "critic/c/f": "critic's"} {
		if got := g.do(g.ann, "GET", "/v1/files/me/"+p, "").ok(200, nil).body; got != want {
			t.Errorf("%s is %q, want %q", p, got, want)
		}
	}
	g.do(g.ann, "GET", "/v1/files/chats/c/f?expert=shared", "").refused(400, "invalid", "shared")
	g.do(g.ann, "GET", "/v1/files/chats/none/f", "").refused(404, "not_found", "none")

	g.do(g.key, "PUT", "/v1/chats/k", `{"end_user":"u"}`).ok(200, nil)
	g.do(g.key, "PUT", "/v1/files/chats/k/f", "the session's").ok(201, nil)
	if got := g.do(g.key, "GET", "/v1/files/chats/k/f?expert=critic", "").ok(200, nil).body; got != "the session's" {
		t.Errorf("the experts of a key's chat do not share: %q", got)
	}
	g.do(g.key, "GET", "/v1/files/me/", "").refused(403, "forbidden", "me")
	g.do(g.key, "GET", "/v1/files/shared/", "").refused(403, "forbidden", "shared")
	g.do(g.ann, "GET", "/v1/files/chats/k/f", "").refused(404, "not_found", "k")
}

func TestUploadLimits(t *testing.T) {
	g := newGateway(t, nil)
	const limit = 4 << 20
	// Announced, it is refused unread; else when the limit is reached.
	for _, header := range []string{"Content-Length: 1073741824", "Transfer-Encoding: chunked"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "PUT /v1/files/me/big HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n", g.ann, header)
		sent := make(chan int64)
		go func() {
			chunk := "100000\r\n" + string(make([]byte, 1<<20)) + "\r\n"
			n, err := int64(0), error(nil)
			for ; err == nil && n < 1<<30; n += 1 << 20 {
				_, err = io.WriteString(conn, chunk)
			}
			sent <- n
		}()
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		conn.Close()
		answer{t, "PUT with " + header, res.StatusCode, res.Header, string(body)}.refused(413, "too_large")
		if n := <-sent; n > 16*limit {
			t.Errorf("%s: the gateway took %d bytes", header, n)
		}
	}
	g.do(g.ann, "PUT", "/v1/files/me/fits", string(make([]byte, limit))).ok(201, nil)
	if got := names(g.list(g.ann, "/v1/files/me/")); got != "fits" {
		t.Errorf("the directory has %q, want nothing of the refused files", got)
	}
}

// TestUploadCutShort leaves the old content when the client goes in the middle.
func TestUploadCutShort(t *testing.T) {
	g := newGateway(t, nil)
	g.do(g.ann, "PUT", "/v1/files/me/f", "old").ok(201, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "PUT /v1/files/me/f HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n", g.ann)
	conn.Write(bytes.Repeat([]byte("n"), 500))
	conn.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, conn)
	conn.Close()
	if got := g.do(g.ann, "GET", "/v1/files/me/f", "").ok(200, nil).body; got != "old" {
		t.Errorf("the file is %q, want the old content", got)
	}
	if got := names(g.list(g.ann, "/v1/files/me/")); got != "f" {
		t.Errorf("the directory has %q, want f alone", got)
	}
}

// TestRaw has browsers do nothing with what a machine wrote.
func TestRaw(t *testing.T) {
	g := newGateway(t, nil)
	for name, want := range map[string]string{
		"a.html": "application/octet-stream", "a.svg": "image/svg+xml", "a.png": "image/png", "a.txt": "text/plain; charset=utf-8",
		"a.js": "application/octet-stream", "a.pdf": "application/octet-stream", "a": "application/octet-stream", "A.XML": "application/octet-stream",
	} {
		g.write(annDisk, name, "<script>alert(1)</script>")
		h := g.do(g.ann, "GET", "/v1/files/me/"+name, "").ok(200, nil).header
		inline := want == "image/png" || strings.HasPrefix(want, "text/plain")
		if h.Get("Content-Type") != want || h.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox; default-src 'none'") ||
			strings.HasPrefix(h.Get("Content-Disposition"), "attachment") == inline {
			t.Errorf("%s: %v", name, h)
		}
	}
	h := g.do(g.ann, "GET", "/v1/files/me/a.txt?download=1", "").header
	if !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") {
		t.Errorf("download=1: %v", h)
	}
	g.do(g.ann, "GET", "/v1/files/me/a.txt", "", "Accept-Encoding", "gzip").ok(200, nil)
}

// TestSlowFileSystem has operations that are never answered: others go on.
func TestSlowFileSystem(t *testing.T) {
	g := newGateway(t, func(o *Options) { o.FileTimeout = 20 * time.Millisecond })
	release := make(chan struct{})
	dropped := make(chan string, 1)
	_, err := within(t.Context(), g.server, func() (string, error) { <-release; return "late", nil }, func(v string) { dropped <- v })
	if status, p := answerTo(err); status != 503 || p.Code != "unavailable" {
		t.Errorf("got %v", err)
	}
	g.do(g.ann, "PUT", "/v1/files/me/f", "x").ok(201, nil)
	close(release)
	if v := <-dropped; v != "late" {
		t.Errorf("the late result was dropped as %q", v)
	}
}

// TestPutKeepsMode replaces the content of an executable, and links only as names.
func TestPutKeepsMode(t *testing.T) {
	g := newGateway(t, nil)
	file := g.write(annDisk, "run", "#!/bin/sh")
	if err := os.Chmod(file, 0o755); err != nil {
		t.Fatal(err)
	}
	g.do(g.ann, "PUT", "/v1/files/me/run", "#!/bin/bash").ok(200, nil)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != fs.FileMode(0o755) {
		t.Errorf("the mode is %v, %v; want 0755", info.Mode(), err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), berth.PutPrefix+"*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
