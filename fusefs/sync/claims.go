package sync

import (
	"sync"

	"berth/fusefs/index"
)

// claims keeps two workers from one inode or one key. A claim is never waited
// for: who does not get it tries again later, so that no order is needed.
type claims struct {
	mu   sync.Mutex // protects the fields below
	inos map[index.Ino]struct{}
	keys map[string]struct{}
}

func (c *claims) ino(ino index.Ino) (release func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.inos[ino]; taken {
		return nil, false
	}
	if c.inos == nil {
		c.inos = make(map[index.Ino]struct{})
	}
	c.inos[ino] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.inos, ino)
	}, true
}

func (c *claims) key(key string) (release func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.keys[key]; taken {
		return nil, false
	}
	if c.keys == nil {
		c.keys = make(map[string]struct{})
	}
	c.keys[key] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.keys, key)
	}, true
}

// hasIno says whether somebody works on an inode.
func (c *claims) hasIno(ino index.Ino) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, taken := c.inos[ino]
	return taken
}

// hasKey says whether somebody works on a key.
func (c *claims) hasKey(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, taken := c.keys[key]
	return taken
}

// touched tells a listing which keys changed here while its page was on the way,
// so that the page's older news of them is not believed.
type touched struct {
	mu    sync.Mutex // protects the fields below; taken inside index.Update
	pages map[*page]struct{}
}

// A page is the keys that changed since its request was sent.
type page struct{ keys map[string]struct{} }

// begin is called before a listing's request, end when its page is merged.
func (t *touched) begin() *page {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &page{keys: make(map[string]struct{})}
	if t.pages == nil {
		t.pages = make(map[*page]struct{})
	}
	t.pages[p] = struct{}{}
	return p
}

func (t *touched) end(p *page) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pages, p)
}

func (t *touched) add(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.pages {
		p.keys[key] = struct{}{}
	}
}

// has says whether the key changed, or for a prefix any key below it.
func (t *touched) has(p *page, key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := p.keys[key]; ok {
		return true
	}
	if len(key) == 0 || key[len(key)-1] != '/' {
		return false
	}
	for k := range p.keys {
		if len(k) > len(key) && k[:len(key)] == key {
			return true
		}
	}
	return false
}

// A broadcast wakes all that wait on it.
type broadcast struct {
	mu sync.Mutex // protects the field below
	c  chan struct{}
}

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *broadcast) notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
