package agent

import "sync"

// headTail keeps the first and the last bytes of a stream within a budget and
// counts the rest. It is an io.Writer that never fails and never blocks.
type headTail struct {
	mu    sync.Mutex // protects what follows
	limit int        // of head and tail together
	head  []byte
	ring  []byte // the tail, written round and round once it is full
	next  int    // where the ring's oldest byte is when the ring is full
	total int64
	done  bool // the answer was given: what comes now is dropped
}

func newHeadTail(limit int) *headTail { return &headTail{limit: limit} }

func (h *headTail) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(p)
	if h.done {
		return n, nil
	}
	h.total += int64(n)
	half := h.limit / 2
	if room := half - len(h.head); room > 0 {
		take := min(room, len(p))
		h.head = append(h.head, p[:take]...)
		p = p[take:]
	}
	size := h.limit - half
	if len(p) > size {
		p = p[len(p)-size:]
	}
	if room := size - len(h.ring); room > 0 {
		take := min(room, len(p))
		h.ring = append(h.ring, p[:take]...)
		p = p[take:]
	}
	for len(p) > 0 {
		c := copy(h.ring[h.next:], p)
		h.next = (h.next + c) % size
		p = p[c:]
	}
	return n, nil
}

// take returns what was kept and frees it. Later writes are dropped.
func (h *headTail) take() Output {
	h.mu.Lock()
	defer h.mu.Unlock()
	tail := make([]byte, 0, len(h.ring))
	tail = append(append(tail, h.ring[h.next:]...), h.ring[:h.next]...)
	o := Output{Head: h.head, Tail: tail, Total: h.total}
	h.done, h.head, h.ring = true, nil, nil
	return o
}
