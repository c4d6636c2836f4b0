package storetest

import (
	"testing"

	"berth/fusefs/object"
)

func testProbe(t *testing.T, s object.Store, l Limits) {
	put(t, s, "mine", "x", object.PutOptions{})
	got, err := object.Probe(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	want := object.Abilities{
		PutIfNoneMatch: true, PutIfMatch: true, DeleteIfMatch: true, MultipartIfNoneMatch: true,
		Metadata: true, Copy: true, Overlap: !l.NoOverlap,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if left := keys(t, s, ""); len(left) != 1 || left[0] != "mine" {
		t.Errorf("the probe left %q", left)
	}
}
