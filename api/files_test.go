package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"berth/preview"
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

func TestPathsThatLeave(t *testing.T) {
	g := newGateway(t, nil)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.write(annDisk, "d/inside", "fine")
	g.write(shared, "s", "fine")
	for link, target := range map[string]string{
		"abs": outside, "dirabs": filepath.Dir(outside), "up": "../../../../../../../../.." + outside, "loop": "loop",
		"good": "d/inside", "other": "../../shared/s", "d/up": "../..",
	} {
		if err := os.Symlink(target, g.disk(annDisk, link)); err != nil {
			t.Fatal(err)
		}
	}
	for p, status := range map[string]int{
		"../x": 400, "d/../../x": 400, "..%2Fx": 400, "%2e%2e/x": 400, "d/%2E%2E/x": 400, ".": 400, "d//x": 400, "//etc/passwd": 400,
		"a%00b": 400, "%zz": 400, "d/.": 400, strings.Repeat("n", 256): 400, strings.Repeat("n/", 2050) + "n": 400,
		"abs": 403, "dirabs/outside": 403, "up": 403, "other": 403, "d/up/bob": 403, "loop": 400,
	} {
		for _, method := range []string{"GET", "PUT", "DELETE", "POST"} {
			if slices.Contains([]string{"abs", "up", "other", "loop"}, p) && method != "GET" {
				continue // a link itself can be replaced, deleted and moved
			}
			query := ""
			if method == "POST" {
				query = "?move_to=moved"
			}
			conn := g.raw(method, "/v1/files/me/"+p+query)
			if conn.status != status || strings.Contains(conn.body, "secret") {
				t.Errorf("%s %.60s: status %d, want %d: %.200s", method, p, conn.status, status, conn.body)
			}
		}
	}
	if got := g.do(g.ann, "GET", "/v1/files/me/good", "").ok(200, nil).body; got != "fine" {
		t.Errorf("a link that stays inside: %q", got)
	}
	g.do(g.ann, "PUT", "/v1/files/me/abs", "replaced").ok(200, nil)
	if content, err := os.ReadFile(outside); err != nil || string(content) != "secret" {
		t.Errorf("the file outside is %q, %v", content, err)
	}
	g.do(g.ann, "POST", "/v1/files/me/d/inside?move_to=dirabs/x", "").refused(403, "forbidden")
}

// raw sends a request line as it is; clients tidy paths up.
func (g *gateway) raw(method, target string) answer {
	g.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", method, target, g.ann)
	text, err := io.ReadAll(conn)
	if err != nil {
		g.t.Fatal(err)
	}
	var status int
	fmt.Sscanf(string(text), "HTTP/1.1 %d", &status)
	_, body, _ := strings.Cut(string(text), "\r\n\r\n")
	return answer{g.t, method + " " + target, status, nil, body}
}

func TestStrangeFiles(t *testing.T) {
	g := newGateway(t, nil)
	if err := syscall.Mkfifo(g.disk(annDisk, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	// A socket's path is short; t.TempDir's is not.
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Rename(filepath.Join(dir, "sock"), g.disk(annDisk, "sock")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("fifo", g.disk(annDisk, "link")); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	g.do(g.ann, "GET", "/v1/files/me/fifo", "").refused(415, "invalid", "fifo", "a fifo")
	g.do(g.ann, "GET", "/v1/files/me/link", "").refused(415, "invalid", "a fifo")
	g.do(g.ann, "GET", "/v1/files/me/sock", "").refused(415, "invalid", "sock", "a socket")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	for _, e := range g.list(g.ann, "/v1/files/me/") {
		if (e.Name == "fifo" || e.Name == "sock") && e.Kind != "other" {
			t.Errorf("%s is listed as %s", e.Name, e.Kind)
		}
	}
	g.do(g.ann, "PUT", "/v1/files/me/fifo", "a file now").ok(200, nil)
	g.do(g.ann, "DELETE", "/v1/files/me/sock", "").ok(204, nil)
}

func TestStrangeNames(t *testing.T) {
	g := newGateway(t, nil)
	all := []string{"new\nline", "bad\xff\xfename", "-rf", "sp ace", "q?u#e%ry", "a&b=c+d", "é", "\u202egpj.exe", "\"quoted\"", "back\\slash", strings.Repeat("n", 255)}
	for _, name := range all {
		g.do(g.ann, "PUT", "/v1/files/me/"+url.PathEscape(name), name).ok(201, nil)
		if content, err := os.ReadFile(g.disk(annDisk, name)); err != nil || string(content) != name {
			t.Errorf("%q: %q, %v", name, content, err)
		}
		if got := g.do(g.ann, "GET", "/v1/files/me/"+url.PathEscape(name), "").ok(200, nil).body; got != name {
			t.Errorf("%q: got %q", name, got)
		}
	}
	var got []string
	for _, e := range g.list(g.ann, "/v1/files/me/") {
		if (e.NameBytes != nil) == utf8.ValidString(e.Name) && e.NameBytes == nil {
			t.Errorf("%q has no bytes", e.Name)
		}
		name := e.Name
		if e.NameBytes != nil {
			name = string(e.NameBytes)
		}
		got = append(got, name)
	}
	slices.Sort(all)
	if !slices.Equal(got, all) {
		t.Errorf("got %q, want %q", got, all)
	}
	g.do(g.ann, "POST", "/v1/files/me/"+url.PathEscape(all[0])+"?move_to="+url.QueryEscape("x\xff\ny"), "").ok(200, nil)
	g.do(g.ann, "GET", "/v1/files/me/"+url.PathEscape("x\xff\ny"), "").ok(200, nil)
}

// TestManyNames pages through 100,000 names; each page is bounded.
func TestManyNames(t *testing.T) {
	g := newGateway(t, nil)
	dir := g.disk(annDisk, "many")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const count = 100_000
	target := filepath.Join(dir, "000000")
	if err := os.WriteFile(target, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < count; i++ {
		// Links are made faster than files, but one file has 65,000 at most.
		if i%30_000 == 0 {
			target = filepath.Join(dir, fmt.Sprintf("%06d", i))
			if err := os.WriteFile(target, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.Link(target, filepath.Join(dir, fmt.Sprintf("%06d", i))); err != nil {
			t.Fatal(err)
		}
	}
	seen, after := 0, ""
	for page := 0; ; page++ {
		if page == 3 { // the pages between are like these
			seen = count - 1500
			after = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%06d", seen-1))
		}
		var l listingAnswer
		g.do(g.ann, "GET", "/v1/files/me/many/?limit=5000&after="+after, "").ok(200, &l)
		if len(l.Entries) > maxPage {
			t.Fatalf("a page has %d names", len(l.Entries))
		}
		for _, e := range l.Entries {
			if want := fmt.Sprintf("%06d", seen); e.Name != want {
				t.Fatalf("name %d is %q, want %q", seen, e.Name, want)
			}
			seen++
		}
		if after = l.Next; after == "" {
			break
		}
	}
	if seen != count {
		t.Errorf("%d names, want %d", seen, count)
	}
	g.do(g.ann, "GET", "/v1/files/me/many/?after=%21", "").refused(400, "invalid", "after")
	g.do(g.ann, "GET", "/v1/files/me/many/?limit=x", "").refused(400, "invalid", "limit")
}

// TestSparse serves ranges of the largest sparse file that the file system has.
func TestSparse(t *testing.T) {
	g := newGateway(t, nil)
	f, err := os.Create(g.disk(annDisk, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int64(math.MaxInt64)
	for ; f.Truncate(size) != nil; size /= 2 {
	}
	if size < 1<<40 {
		t.Fatalf("the largest file has %d bytes here", size)
	}
	const file = "/v1/files/me/sparse"
	a := g.do(g.ann, "GET", file, "", "Range", fmt.Sprintf("bytes=%d-", size-4)).ok(206, nil)
	if a.body != "\x00\x00\x00\x00" {
		t.Errorf("the last bytes: %q", a.body)
	}
	if a = g.do(g.ann, "GET", file, "", "Range", "bytes=-3").ok(206, nil); len(a.body) != 3 {
		t.Errorf("a suffix: %q", a.body)
	}
	if a = g.do(g.ann, "HEAD", file, "").ok(200, nil); a.header.Get("Content-Length") != fmt.Sprint(size) {
		t.Errorf("HEAD: Content-Length %s, want %d", a.header.Get("Content-Length"), size)
	}
	if g.list(g.ann, "/v1/files/me/")[0].Size != size {
		t.Error("the listing has another size")
	}
	// A client that takes the beginning of the whole and goes.
	ctx, cancel := context.WithCancel(t.Context())
	res, err := http.DefaultTransport.RoundTrip(g.request(g.ann, "GET", file, "").WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, res.Body, 1<<20); err != nil {
		t.Error(err)
	}
	cancel()
	res.Body.Close()
}

// TestTruncatedWhileServed cuts a file while a client takes it.
func TestTruncatedWhileServed(t *testing.T) {
	g := newGateway(t, nil)
	const size = 64 << 20
	file := g.write(annDisk, "f", "")
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(g.request(g.ann, "GET", "/v1/files/me/f", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.CopyN(io.Discard, res.Body, 1<<10); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 0); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	if err == nil || n >= size-1<<10 {
		t.Errorf("the client got %d bytes more and %v, want a short body", n, err)
	}
	g.do(g.ann, "GET", "/v1/files/me/f", "").ok(200, nil)
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

func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"", "/", "a/b", "a//b", "../x", "%2e%2e/x", "a%2fb", "%00", "%", "a/./b", "\xff/x", "a/", strings.Repeat("a/", 3000)} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, s string, escaped bool) {
		p, dir, err := parsePath(s, escaped)
		if err != nil {
			return
		}
		if p == "" {
			if !dir {
				t.Errorf("parsePath(%q) is the root and no directory", s)
			}
			return
		}
		if !filepath.IsLocal(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) || len(p) >= maxPath || p == "." {
			t.Errorf("parsePath(%q) = %q", s, p)
		}
		if full := (place{path: p}).full(); full != p {
			t.Errorf("full of %q is %q", p, full)
		}
	})
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
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), preview.PutPrefix+"*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
