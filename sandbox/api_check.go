package sandbox

// Every implementation in this package of an interface, checked when compiled.
var _ Provider = (*Client)(nil)
