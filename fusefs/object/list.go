package object

import (
	"context"
	"iter"
)

// All returns every object whose key begins with the prefix, page by page, in
// the byte order of the keys. An error ends it.
func All(ctx context.Context, s Store, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		o := ListOptions{Prefix: prefix}
		for {
			page, err := s.List(ctx, o)
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, info := range page.Objects {
				if !yield(info, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			o.After = page.Next
		}
	}
}
