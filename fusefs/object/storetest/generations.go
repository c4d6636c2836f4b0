package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"

	"berth/fusefs/object"
)

// generation returns content and metadata that tell which generation they are of.
func generation(n int) (string, object.PutOptions) {
	return strings.Repeat(string(rune('a'+n%26)), 1000+n), object.PutOptions{Metadata: map[string]string{"generation": strconv.Itoa(n)}}
}

// checkGeneration returns an error if what was read is not of one generation.
func checkGeneration(info object.Info, body string) error {
	n, err := strconv.Atoi(info.Metadata["generation"])
	if err != nil {
		return fmt.Errorf("no generation in %+v", info)
	}
	want, _ := generation(n)
	if info.Size != int64(len(want)) || body != "" && body != want {
		return fmt.Errorf("metadata of generation %d with %d bytes (%d read), want %d", n, info.Size, len(body), len(want))
	}
	return nil
}

// testGenerations proves that readers see one generation as a whole, while
// others replace it.
func testGenerations(t *testing.T, s object.Store, _ Limits) {
	const puts, readers = 60, 4
	body, o := generation(0)
	put(t, s, "dir/g", body, o)
	ctx, done := context.WithCancel(t.Context())
	var etags sync.Map // ETag -> generation
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for ctx.Err() == nil {
				info, err := s.Head(t.Context(), "dir/g")
				if err == nil {
					err = checkGeneration(info, "")
				}
				if err != nil {
					t.Errorf("head: %v", err)
					return
				}
				if known, loaded := etags.LoadOrStore(info.ETag, info.Metadata["generation"]); loaded && known != info.Metadata["generation"] {
					t.Errorf("head: ETag of generation %v with metadata of %s", known, info.Metadata["generation"])
				}
				if err := readGeneration(t.Context(), s, info); err != nil {
					t.Errorf("get: %v", err)
					return
				}
			}
		})
	}
	for n := 1; n <= puts; n++ {
		body, o := generation(n)
		put(t, s, "dir/g", body, o)
	}
	done()
	wg.Wait()
}

// readGeneration reads what a Head has shown. That it is gone is no fault.
func readGeneration(ctx context.Context, s object.Store, seen object.Info) error {
	r, info, err := s.Get(ctx, "dir/g", object.GetOptions{IfMatch: seen.ETag})
	if errors.Is(err, object.ErrPrecondition) {
		return nil
	}
	if err != nil {
		return err
	}
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if info.ETag != seen.ETag || info.Metadata["generation"] != seen.Metadata["generation"] {
		return fmt.Errorf("got %+v, want %+v", info, seen)
	}
	return checkGeneration(info, string(data))
}
