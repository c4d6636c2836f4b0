#!/bin/bash
# What a change must pass before it is submitted.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$top"
say "gofmt"
unformatted=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 gofmt -l)
[ -z "$unformatted" ] || fail "these files are not formatted: $unformatted" "gofmt -w them"
say "staticcheck"
go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./... || fail "staticcheck found something" "look at its lines above"
# Some orders of goroutines are only met on one processor.
say "concurrent packages on one processor"
GOMAXPROCS=1 go test -count=1 -short -timeout=10m ./preview ./sandbox ./fusefs/sync || fail "tests fail with GOMAXPROCS=1" "look for FAIL above"
"$top/deploy/test.sh"
