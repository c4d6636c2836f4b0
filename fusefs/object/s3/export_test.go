package s3

// CopyParts lets tests copy small objects as large ones are copied.
var CopyParts = (*Store).copyParts

// PartLayout lets tests try sizes that nobody uploads in a test.
var PartLayout = partLayout

// BaseURL is where the keys of the bucket are.
func BaseURL(s *Store) string { return s.base.String() }
