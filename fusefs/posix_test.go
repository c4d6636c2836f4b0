package fusefs

import (
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"

	"berth/fusefs/object/embedded/embeddedtest"
)

// TestPosixNative proves the suite on the file system below.
func TestPosixNative(t *testing.T) {
	for name, test := range posixtest.All {
		t.Run(name, func(t *testing.T) { test(t, t.TempDir()) })
	}
}

func TestPosix(t *testing.T) {
	for name, test := range posixtest.All {
		t.Run(name, func(t *testing.T) { test(t, newRig(t).dir) })
	}
}

func TestPosixThroughDaemon(t *testing.T) {
	for name, test := range posixtest.All {
		t.Run(name, func(t *testing.T) {
			test(t, newRig(t, func(o *Options) { o.NoPassthrough = true }).dir)
		})
	}
}

func TestPosixEmbeddedStore(t *testing.T) {
	store := embeddedtest.Open(t)
	for name, test := range posixtest.All {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Store = store })
			test(t, r.dir)
			r.close()
			r.emptyStore()
		})
	}
}
