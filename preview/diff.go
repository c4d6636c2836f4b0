package preview

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits of a diff. What is larger is described, not compared.
const (
	MaxDiffBytes = 5 << 20 // of each side
	MaxDiffLines = 50_000  // of each side
	maxDiffTime  = 2 * time.Second
	maxDiffShown = 1 << 20 // bytes of lines in the answer
	maxLineShown = 5000    // bytes of one line in the answer
	diffContext  = 3       // unchanged lines around a change
)

// ErrTooLarge says that a file is too large to be compared.
var ErrTooLarge = errors.New("the file is too large to be compared")

// A Diff tells how a text changed.
type Diff struct {
	Hunks []Hunk `json:"hunks"`
	// Added and Removed count all lines, shown or not.
	Added   int `json:"added"`
	Removed int `json:"removed"`
	// Binary is set, and Hunks empty, if a side is not UTF-8 text.
	Binary bool `json:"binary"`
	// Truncated says that lines or parts of lines were left out of Hunks.
	Truncated bool `json:"truncated"`
	// Approximate says that a part was too different to compare line by line and
	// is shown as replaced.
	Approximate bool `json:"approximate"`
}

// A Hunk is a run of changed lines with the unchanged ones around them.
type Hunk struct {
	A     int    `json:"a"` // number of its first line before, from 1
	B     int    `json:"b"` // number of its first line after, from 1
	Lines []Line `json:"lines"`
}

// A Line is one line of a hunk.
type Line struct {
	T string `json:"t"`           // " " unchanged, "+" added, "-" removed
	A int    `json:"a,omitempty"` // its number before, if it was there
	B int    `json:"b,omitempty"` // its number after, if it is there
	S string `json:"s"`           // without the newline
}

// DiffText compares two texts. It fails with ErrTooLarge if either is over the
// limits or the time is up.
func DiffText(ctx context.Context, before, after []byte) (Diff, error) {
	if len(before) > MaxDiffBytes || len(after) > MaxDiffBytes {
		return Diff{}, fmt.Errorf("cannot compare %d with %d bytes, at most %d are compared: %w",
			len(before), len(after), MaxDiffBytes, ErrTooLarge)
	}
	if isBinary(before) || isBinary(after) {
		return Diff{Hunks: []Hunk{}, Binary: true}, nil
	}
	a, b := splitLines(before), splitLines(after)
	if len(a) > MaxDiffLines || len(b) > MaxDiffLines {
		return Diff{}, fmt.Errorf("cannot compare %d with %d lines, at most %d are compared: %w",
			len(a), len(b), MaxDiffLines, ErrTooLarge)
	}
	ctx, cancel := context.WithTimeout(ctx, maxDiffTime)
	defer cancel()
	m := newMatcher(ctx, a, b)
	if err := m.match(); err != nil {
		return Diff{}, fmt.Errorf("cannot compare %d with %d lines within %v: %w", len(a), len(b), maxDiffTime, ErrTooLarge)
	}
	d := render(a, b, m.pairs)
	d.Approximate = m.approximate
	return d, nil
}

// isBinary looks like git does for a NUL, and wants UTF-8 since JSON does.
func isBinary(text []byte) bool {
	return bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text)
}

// splitLines returns the lines of a text, each with its newline, so that a
// missing one at the end counts as a difference.
func splitLines(text []byte) []string {
	if len(text) == 0 {
		return nil
	}
	lines := strings.SplitAfter(string(text), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// A run is a range of equal lines: a[A:A+N] equals b[B:B+N].
type run struct{ A, B, N int }

// renderer builds a Diff from the runs of equal lines, in order.
type renderer struct {
	a, b  []string
	d     Diff
	shown int
}

func render(a, b []string, equal []run) Diff {
	r := renderer{a: a, b: b, d: Diff{Hunks: []Hunk{}}}
	equal = append(equal, run{len(a), len(b), 0}) // an end, so that the last change is followed by a run
	x, y := 0, 0
	open := false // whether the last hunk can be gone on with
	lead := 0     // how many unchanged lines before x,y are available and not shown
	for _, e := range equal {
		if e.A > x || e.B > y {
			if !open {
				n := min(lead, diffContext)
				r.d.Hunks = append(r.d.Hunks, Hunk{A: x - n + 1, B: y - n + 1, Lines: []Line{}})
				r.same(x-n, y-n, n)
			}
			r.changed(x, e.A, y, e.B)
			open = true
		}
		last := e.A+e.N == len(a) && e.B+e.N == len(b)
		switch {
		case open && e.N > 2*diffContext || open && last:
			r.same(e.A, e.B, min(e.N, diffContext))
			open, lead = false, e.N
		case open:
			r.same(e.A, e.B, e.N)
			lead = 0
		default:
			lead = e.N
		}
		x, y = e.A+e.N, e.B+e.N
	}
	return r.d
}

func (r *renderer) same(x, y, n int) {
	for i := range n {
		r.add(Line{T: " ", A: x + i + 1, B: y + i + 1, S: r.a[x+i]})
	}
}

func (r *renderer) changed(x, xEnd, y, yEnd int) {
	r.d.Removed += xEnd - x
	r.d.Added += yEnd - y
	for ; x < xEnd; x++ {
		r.add(Line{T: "-", A: x + 1, S: r.a[x]})
	}
	for ; y < yEnd; y++ {
		r.add(Line{T: "+", B: y + 1, S: r.b[y]})
	}
}

// add appends a line to the last hunk while there is room in the answer.
func (r *renderer) add(l Line) {
	text, ended := strings.CutSuffix(l.S, "\n")
	if !ended {
		text += " \\ no newline at the end"
	}
	if len(text) > maxLineShown {
		cut := maxLineShown
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text, r.d.Truncated = text[:cut]+"…", true
	}
	if r.shown += len(text) + 40; r.shown > maxDiffShown {
		r.d.Truncated = true
		return
	}
	l.S = text
	h := &r.d.Hunks[len(r.d.Hunks)-1]
	h.Lines = append(h.Lines, l)
}
