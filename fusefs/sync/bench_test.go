package sync

import (
	"fmt"
	"testing"

	"berth/fusefs/object/mem"
)

// BenchmarkSmallFiles uploads, renames and deletes small files; the figure is the
// time of all three for one file, without what the file system itself does.
func BenchmarkSmallFiles(b *testing.B) {
	w := newWorld(b, &mem.Store{}, nil)
	w.mkdir("d")
	for i := range b.N {
		w.create(fmt.Sprintf("d/f%d", i), "small")
	}
	b.ResetTimer()
	w.flush()
	w.rename("d", "e")
	w.flush()
	b.StopTimer()
	for i := range b.N {
		w.unlink(fmt.Sprintf("e/f%d", i))
	}
	b.StartTimer()
	w.flush()
}
