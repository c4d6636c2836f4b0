package storetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"berth/fusefs/object"
)

// testSiblings lets many come and go beside each other: in a store that keeps
// directories, the last one to leave takes the directory with it.
func testSiblings(t *testing.T, s object.Store, _ Limits) {
	const workers, rounds = 8, 15
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			key := fmt.Sprintf("p/q/r/%d", w)
			for round := range rounds {
				o := object.PutOptions{IfNoneMatch: true, InParts: round%5 == 4}
				info, err := s.Put(t.Context(), key, strings.NewReader(key), int64(len(key)), o)
				if err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
				if got, err := s.Head(t.Context(), key); err != nil || got.ETag != info.ETag {
					t.Errorf("round %d: head: %+v, %v", round, got, err)
					return
				}
				if err := s.Delete(t.Context(), key, info.ETag); err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := keys(t, s, ""); len(got) != 0 {
		t.Errorf("in the end: got %q", got)
	}
	put(t, s, "p", "a file in place of the directory", object.PutOptions{IfNoneMatch: true})
}
