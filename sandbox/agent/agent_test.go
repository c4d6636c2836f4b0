package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
)

// The services are tested through the manager, in package sandbox, and in real
// containers, in package docker; here are the parts that stand alone.

func TestHeadTail(t *testing.T) {
	for _, c := range []struct {
		limit        int
		writes       []string
		head, tail   string
		total        int64
		wantTrimming bool
	}{
		{8, nil, "", "", 0, false},
		{8, []string{"abc"}, "abc", "", 3, false},
		{8, []string{"abcdefgh"}, "abcd", "efgh", 8, false},
		{8, []string{"abcdefghi"}, "abcd", "fghi", 9, true},
		{8, []string{"a", "b", "cdef", "g", "hij", "k"}, "abcd", "hijk", 11, true},
		{8, []string{"abcd", "0123456789"}, "abcd", "6789", 14, true},
		{7, []string{"abcdefghijk"}, "abc", "hijk", 11, true},
	} {
		h := newHeadTail(c.limit)
		for _, w := range c.writes {
			if n, err := h.Write([]byte(w)); n != len(w) || err != nil {
				t.Errorf("write %q: %d, %v", w, n, err)
			}
		}
		o := h.take()
		if string(o.Head) != c.head || string(o.Tail) != c.tail || o.Total != c.total || o.Truncated() != c.wantTrimming {
			t.Errorf("%d, %q: %q, %q, %d, %v", c.limit, c.writes, o.Head, o.Tail, o.Total, o.Truncated())
		}
		if n, err := h.Write([]byte("late")); n != 4 || err != nil || h.head != nil {
			t.Errorf("write after take: %d, %v, %q", n, err, h.head)
		}
	}
}

func FuzzHeadTail(f *testing.F) {
	f.Add([]byte("abcdefghijklmnop"), uint8(3), uint8(8))
	f.Fuzz(func(t *testing.T, data []byte, step, limit uint8) {
		if limit < 2 || step == 0 {
			return
		}
		h := newHeadTail(int(limit))
		for rest := data; len(rest) > 0; {
			n := min(int(step), len(rest))
			h.Write(rest[:n])
			rest = rest[n:]
		}
		o := h.take()
		if o.Total != int64(len(data)) || len(o.Head)+len(o.Tail) != min(len(data), int(limit)) {
			t.Fatalf("total %d, kept %d and %d of %d", o.Total, len(o.Head), len(o.Tail), len(data))
		}
		if !bytes.HasPrefix(data, o.Head) || !bytes.HasSuffix(data, o.Tail) {
			t.Fatalf("%q: head %q, tail %q", data, o.Head, o.Tail)
		}
	})
}

func TestPlace(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"a", "/home/user/workspace/profy/c/a"}, {"./a/../b", "/home/user/workspace/profy/c/b"},
		{"../../../../..", "/"}, {"/etc/passwd", "/etc/passwd"}, {"/a//b/.", "/a/b"},
		{"", ""}, {"a\x00", ""}, {strings.Repeat("x", MaxPathName+1), ""},
	} {
		got, err := place("/home/user", "workspace/profy/c", c.path)
		if got != c.want || (c.want == "") != errors.Is(err, fs.ErrInvalid) {
			t.Errorf("place %.40q: %q, %v, want %q", c.path, got, err, c.want)
		}
	}
}

func TestErrorCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code string
		is   error
	}{
		{syscall.ENOENT, CodeNotFound, fs.ErrNotExist}, {syscall.EACCES, CodePermission, fs.ErrPermission},
		{syscall.EROFS, CodePermission, fs.ErrPermission}, {syscall.EISDIR, CodeInvalid, fs.ErrInvalid},
		{syscall.ENAMETOOLONG, CodeInvalid, fs.ErrInvalid}, {syscall.EEXIST, CodeExists, fs.ErrExist},
		{syscall.EDQUOT, CodeFull, nil}, {syscall.EIO, CodeInternal, nil}, {invalidf("bad"), CodeInvalid, fs.ErrInvalid},
	} {
		e := toError(fmt.Errorf("cannot do it: %w", c.err))
		if e.Code != c.code || c.is != nil && !errors.Is(e, c.is) {
			t.Errorf("%v: code %q, want %q", c.err, e.Code, c.code)
		}
	}
	if e := toError(errors.New(strings.Repeat("é\xff", MaxMessage))); len(e.Message) > 3*MaxMessage || strings.Contains(e.Message, "\xff") {
		t.Errorf("a long message has %d bytes", len(e.Message))
	}
}

func TestProcessTable(t *testing.T) {
	child, err := os.StartProcess("/bin/sleep", []string{"a) R 1 (b", "1000"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Kill()
	if got := descendants(os.Getpid(), nil); len(got) != 1 || got[0] != child.Pid {
		t.Errorf("descendants: %v, want %d", got, child.Pid)
	}
	if got := descendants(os.Getpid(), func(int) bool { return true }); len(got) != 0 {
		t.Errorf("descendants but the known: %v", got)
	}
}
