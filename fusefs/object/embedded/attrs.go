package embedded

import (
	"os"

	"github.com/versity/versitygw/backend/meta"
)

// partsAttr is where the posix backend keeps the sizes of an object's parts, for
// those who ask for a part by its number.
const partsAttr = "mp-metadata"

// attributes keeps what belongs to an object beside its bytes, as the posix
// backend does, but not the sizes of its parts: with some hundred parts they are
// too much for an extended attribute of ext4, and the object could not be stored.
type attributes struct{ meta.XattrMeta }

func (a attributes) StoreAttribute(f *os.File, bucket, object, attribute string, value []byte) error {
	if attribute == partsAttr {
		return nil
	}
	return a.XattrMeta.StoreAttribute(f, bucket, object, attribute, value)
}
