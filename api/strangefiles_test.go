package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
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
)

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
	g.do(g.ann, "PUT", "/v1/files/me/abs", "replaced").refused(403, "forbidden", "abs")
	g.do(g.ann, "PUT", "/v1/files/me/good", "replaced").refused(409, "conflict", "good", "symbolic link")
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
