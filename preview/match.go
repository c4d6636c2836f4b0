package preview

import (
	"context"
	"sort"
)

// matcher finds runs of equal lines in three steps: the common beginning and
// end are set aside; lines that occur once on each side anchor the rest, by the
// longest increasing chain of them; what lies between two anchors is compared
// with Myers' greedy algorithm, which is bounded: a gap that is too different
// is shown as replaced.
type matcher struct {
	ctx         context.Context
	a, b        []int32 // the lines as numbers: equal lines have equal numbers
	pairs       []run   // in order, neither touching nor overlapping
	approximate bool
}

// The bounds of Myers' algorithm in one gap: edits, and edits times lines.
const (
	maxEdits = 1000
	maxWork  = 5_000_000
)

func newMatcher(ctx context.Context, a, b []string) *matcher {
	numbers := make(map[string]int32, len(a)+len(b))
	number := func(lines []string) []int32 {
		out := make([]int32, len(lines))
		for i, l := range lines {
			n, ok := numbers[l]
			if !ok {
				n = int32(len(numbers))
				numbers[l] = n
			}
			out[i] = n
		}
		return out
	}
	return &matcher{ctx: ctx, a: number(a), b: number(b)}
}

func (m *matcher) match() error {
	x, y, xEnd, yEnd := 0, 0, len(m.a), len(m.b)
	for x < xEnd && y < yEnd && m.a[x] == m.b[y] {
		x, y = x+1, y+1
	}
	m.add(0, 0, x)
	for xEnd > x && yEnd > y && m.a[xEnd-1] == m.b[yEnd-1] {
		xEnd, yEnd = xEnd-1, yEnd-1
	}
	for _, anchor := range m.anchors(x, xEnd, y, yEnd) {
		if anchor.A < x {
			continue // the run before it went on over it
		}
		if err := m.gap(x, anchor.A, y, anchor.B); err != nil {
			return err
		}
		x, y = anchor.A, anchor.B
		n := 0
		for x+n < xEnd && y+n < yEnd && m.a[x+n] == m.b[y+n] {
			n++
		}
		m.add(x, y, n)
		x, y = x+n, y+n
	}
	if err := m.gap(x, xEnd, y, yEnd); err != nil {
		return err
	}
	m.add(xEnd, yEnd, len(m.a)-xEnd)
	return nil
}

// add appends a run, joining it to the last one if they touch.
func (m *matcher) add(x, y, n int) {
	if n == 0 {
		return
	}
	if k := len(m.pairs) - 1; k >= 0 && m.pairs[k].A+m.pairs[k].N == x && m.pairs[k].B+m.pairs[k].N == y {
		m.pairs[k].N += n
		return
	}
	m.pairs = append(m.pairs, run{x, y, n})
}

// anchors returns the longest chain, increasing on both sides, of lines that
// occur exactly once on each side of the range.
func (m *matcher) anchors(x, xEnd, y, yEnd int) []run {
	type seen struct{ inA, inB, a, b int }
	lines := make(map[int32]seen)
	for i := x; i < xEnd; i++ {
		s := lines[m.a[i]]
		s.inA, s.a = s.inA+1, i
		lines[m.a[i]] = s
	}
	for i := y; i < yEnd; i++ {
		s := lines[m.b[i]]
		s.inB, s.b = s.inB+1, i
		lines[m.b[i]] = s
	}
	var unique []run // in the order of a
	for i := x; i < xEnd; i++ {
		if s := lines[m.a[i]]; s.inA == 1 && s.inB == 1 {
			unique = append(unique, run{A: i, B: s.b})
		}
	}
	// Patience sorting: tails[k] ends the best chain of k+1 anchors.
	var tails []int
	prev := make([]int, len(unique))
	for i, u := range unique {
		k := sort.Search(len(tails), func(k int) bool { return unique[tails[k]].B > u.B })
		prev[i] = -1
		if k > 0 {
			prev[i] = tails[k-1]
		}
		if k == len(tails) {
			tails = append(tails, i)
		} else {
			tails[k] = i
		}
	}
	chain := make([]run, len(tails))
	if len(tails) > 0 {
		for i, k := tails[len(tails)-1], len(tails)-1; k >= 0; k-- {
			chain[k] = unique[i]
			i = prev[i]
		}
	}
	return chain
}

// gap compares a range with Myers' algorithm if that is not too much work, and
// else leaves it as replaced.
func (m *matcher) gap(x, xEnd, y, yEnd int) error {
	if m.ctx.Err() != nil {
		return m.ctx.Err()
	}
	for x < xEnd && y < yEnd && m.a[x] == m.b[y] {
		m.add(x, y, 1)
		x, y = x+1, y+1
	}
	if x == xEnd || y == yEnd {
		return nil
	}
	a, b := m.a[x:xEnd], m.b[y:yEnd]
	limit := min(maxEdits, maxWork/(len(a)+len(b)), len(a)+len(b))
	runs, ok := myers(a, b, limit)
	if !ok {
		m.approximate = true
		return nil
	}
	for _, r := range runs {
		m.add(x+r.A, y+r.B, r.N)
	}
	return nil
}

// myers returns the runs of a shortest edit script, or false if it has more
// than limit edits. Time and memory are of order limit*(limit+len(a)+len(b)).
func myers(a, b []int32, limit int) ([]run, bool) {
	v := make([]int32, 2*limit+3) // v[k+mid]: how far in a diagonal k reaches
	mid := limit + 1
	var trace [][]int32 // the diagonals -d..d of v before step d
	for d := 0; d <= limit; d++ {
		trace = append(trace, append([]int32(nil), v[mid-d-1:mid+d+2]...))
		for k := -d; k <= d; k += 2 {
			var x int
			if k == -d || (k != d && v[mid+k-1] < v[mid+k+1]) {
				x = int(v[mid+k+1])
			} else {
				x = int(v[mid+k-1]) + 1
			}
			for x < len(a) && x-k >= 0 && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			v[mid+k] = int32(x)
			if x >= len(a) && x-k >= len(b) {
				return retrace(trace, len(a), len(b)), true
			}
		}
	}
	return nil, false
}

// retrace walks back from the end and returns the runs of equal lines in order.
func retrace(trace [][]int32, x, y int) []run {
	var runs []run
	for d := len(trace) - 1; d >= 0; d-- {
		v := trace[d] // v[i] is diagonal i-d-1
		k := x - y
		fromAbove := k == -d || (k != d && v[k-1+d+1] < v[k+1+d+1])
		var px, py int // where the edit before this run started
		switch {
		case d == 0:
			px, py = 0, 0
		case fromAbove:
			px = int(v[k+1+d+1])
			py = px - (k + 1)
		default:
			px = int(v[k-1+d+1])
			py = px - (k - 1)
		}
		start := px // where the run starts, after the edit
		if d > 0 && !fromAbove {
			start++
		}
		if n := x - start; n > 0 {
			runs = append(runs, run{A: start, B: start - k, N: n})
		}
		x, y = px, py
	}
	for i, j := 0, len(runs)-1; i < j; i, j = i+1, j-1 {
		runs[i], runs[j] = runs[j], runs[i]
	}
	return runs
}
