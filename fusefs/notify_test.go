package fusefs

import (
	"testing"

	"berth/fusefs/index"
)

// However many notices the kernel keeps, the others go on as soon as it lets go of
// one of them.
func TestNoticesBehindManyStuck(t *testing.T) {
	n := newNotifier()
	let := make([]chan struct{}, maxStuck+2)
	begun := make(chan index.Ino, len(let))
	for i := range let {
		let[i] = make(chan struct{})
	}
	n.tell = func(it notice) {
		begun <- it.ino
		<-let[it.ino]
	}
	n.tellers.Add(1)
	go n.run(n.turn)
	for i := range let {
		n.attrs(index.Ino(i))
	}
	for range maxStuck + 1 {
		<-begun
	}
	eventually(t, "no more may be stuck", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.held
	})
	close(let[0])
	eventually(t, "the last is told", func() bool { return len(begun) == 1 })
	for i := range let[1:] {
		close(let[i+1])
	}
	n.close()
}
