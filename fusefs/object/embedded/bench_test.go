package embedded_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"berth/fusefs/object"
	"berth/fusefs/object/embedded/embeddedtest"
)

// BenchmarkSmall measures the requests that uploads of small files are made of.
func BenchmarkSmall(b *testing.B) {
	s := embeddedtest.Open(b)
	body := bytes.NewReader(make([]byte, 4096))
	meta := map[string]string{"file-permissions": "0100644", "file-mtime": "1714070400123456789ns", "mtime": "1714070400.123456789"}
	var n atomic.Int64
	b.Run("Put", func(b *testing.B) {
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				key := fmt.Sprintf("dir/%d", n.Add(1))
				if _, err := s.Put(b.Context(), key, body, 4096, object.PutOptions{IfNoneMatch: true, Metadata: meta}); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("PutSerial", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Put(b.Context(), fmt.Sprintf("dir/%d", n.Add(1)), body, 4096, object.PutOptions{IfNoneMatch: true}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Head", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Head(b.Context(), "dir/1"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ListPage", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.List(b.Context(), object.ListOptions{Prefix: "dir/"}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
