// Package e2e holds the tests that use Berth as its users do: they start the
// built program with `berth up` and work through HTTP, a browser, the command
// line and a plain S3 client. They need root, FUSE, a Docker engine and the
// machine image; `make test` sees to all of them.
package e2e
