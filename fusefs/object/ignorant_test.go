package object_test

import (
	"context"
	"io"

	"berth/fusefs/object"
	"berth/fusefs/object/mem"
)

// ignorant is a store that takes conditional requests and ignores the condition,
// as stores did before S3 had them.
type ignorant struct{ *mem.Store }

func (s ignorant) Put(ctx context.Context, key string, body io.ReaderAt, size int64, o object.PutOptions) (object.Info, error) {
	o.IfMatch, o.IfNoneMatch = "", false
	return s.Store.Put(ctx, key, body, size, o)
}

func (s ignorant) Delete(ctx context.Context, key, _ string) error {
	return s.Store.Delete(ctx, key, "")
}
