package docker

import "berth/sandbox"

// Every implementation in this package of an interface, checked when compiled.
var _ sandbox.Provider = (*Provider)(nil)
