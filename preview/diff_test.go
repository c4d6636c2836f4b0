package preview

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// show writes a diff in a compact form: hunks as @a,b and one line per line.
func show(d Diff) string {
	var out strings.Builder
	for _, h := range d.Hunks {
		fmt.Fprintf(&out, "@%d,%d\n", h.A, h.B)
		for _, l := range h.Lines {
			fmt.Fprintf(&out, "%s%s\n", l.T, l.S)
		}
	}
	return out.String()
}

func TestDiffText(t *testing.T) {
	long := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n"
	tests := []struct{ name, before, after, want string }{
		{"equal", "a\nb\n", "a\nb\n", ""},
		{"both empty", "", "", ""},
		{"from nothing", "", "a\nb\n", "@1,1\n+a\n+b\n"},
		{"to nothing", "a\nb\n", "", "@1,1\n-a\n-b\n"},
		{"changed line", "a\nb\nc\n", "a\nB\nc\n", "@1,1\n a\n-b\n+B\n c\n"},
		{"context", long, strings.Replace(long, "6\n", "six\n", 1), "@3,3\n 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9\n"},
		{"two hunks", long, strings.Replace(strings.Replace(long, "1\n2", "one\n2", 1), "\n12", "\ntwelve", 1),
			"@1,1\n-1\n+one\n 2\n 3\n 4\n@9,9\n 9\n 10\n 11\n-12\n+twelve\n"},
		{"newline at the end", "a\nb", "a\nb\n", "@1,1\n a\n-b \\ no newline at the end\n+b\n"},
		{"repeated lines", "x\nx\nx\n", "x\nx\nx\nx\n", "@1,1\n x\n x\n x\n+x\n"},
		{"moved", "a\nb\nc\n", "b\nc\na\n", "@1,1\n-a\n b\n c\n+a\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := DiffText(context.Background(), []byte(tt.before), []byte(tt.after))
			if err != nil {
				t.Fatal(err)
			}
			if got := show(d); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

func TestDiffBinary(t *testing.T) {
	for _, bad := range []string{"a\x00b", "\xff\xfe"} {
		d, err := DiffText(context.Background(), []byte("text\n"), []byte(bad))
		if err != nil || !d.Binary || len(d.Hunks) != 0 {
			t.Errorf("DiffText to %q = %+v, %v; want binary", bad, d, err)
		}
	}
}

func TestDiffLimits(t *testing.T) {
	many := []byte(strings.Repeat("x\n", MaxDiffLines+1))
	large := make([]byte, MaxDiffBytes+1)
	for _, text := range [][]byte{many, large} {
		if _, err := DiffText(context.Background(), nil, text); !errors.Is(err, ErrTooLarge) {
			t.Errorf("DiffText of %d bytes: got %v, want ErrTooLarge", len(text), err)
		}
	}
	d, err := DiffText(context.Background(), nil, []byte(strings.Repeat("y", 4<<20)))
	if err != nil || !d.Truncated || d.Added != 1 || len(d.Hunks[0].Lines[0].S) > maxLineShown+8 {
		t.Errorf("one line of 4 MiB: truncated=%v added=%d err=%v", d.Truncated, d.Added, err)
	}
}

// TestDiffRebuilds applies diffs of random texts and wants the new text back.
func TestDiffRebuilds(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 500 {
		words := 2 + rnd.IntN(30)
		text := func() string {
			var s strings.Builder
			for range rnd.IntN(60) {
				fmt.Fprintf(&s, "%d\n", rnd.IntN(words))
			}
			return s.String()
		}
		before, after := text(), text()
		d, err := DiffText(context.Background(), []byte(before), []byte(after))
		if err != nil {
			t.Fatal(err)
		}
		if got := apply(before, d); got != after {
			t.Fatalf("case %d: applying the diff of %q to %q gave %q\n%s", i, before, after, got, show(d))
		}
	}
}

// apply rebuilds the new text from the old one and a diff.
func apply(before string, d Diff) string {
	old := splitLines([]byte(before))
	var out strings.Builder
	x := 0
	for _, h := range d.Hunks {
		for x < h.A-1 {
			out.WriteString(old[x])
			x++
		}
		for _, l := range h.Lines {
			if l.T != "+" {
				x++
			}
			if l.T != "-" {
				out.WriteString(l.S + "\n")
			}
		}
	}
	for ; x < len(old); x++ {
		out.WriteString(old[x])
	}
	return out.String()
}

// TestDiffTime holds the worst texts to the time limit: few distinct lines, and
// nothing in common.
func TestDiffTime(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	text := func(words int) []byte {
		var s strings.Builder
		for range MaxDiffLines {
			fmt.Fprintf(&s, "%d\n", rnd.IntN(words))
		}
		return []byte(s.String())
	}
	for _, words := range []int{2, 40, 1000, 1 << 30} {
		before, after := text(words), text(words)
		start := time.Now()
		_, err := DiffText(context.Background(), before, after)
		if err != nil && !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
		if took := time.Since(start); took > 2*maxDiffTime {
			t.Errorf("%d words: took %v", words, took)
		}
	}
}

func FuzzDiffText(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), []byte("a\nc\nb\n"))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		d, err := DiffText(context.Background(), before, after)
		if err != nil || d.Binary || d.Truncated {
			return
		}
		if strings.HasSuffix(string(before), "\n") && strings.HasSuffix(string(after), "\n") {
			if got := apply(string(before), d); got != string(after) {
				t.Errorf("applying the diff gave %q, want %q", got, after)
			}
		}
	})
}
