#!/bin/bash
# Installs what tests need, builds, and runs all tests. Everything is real:
# FUSE mounts, a store, a Docker engine, a browser. BERTH_SOAK=1 runs the long
# ones in full, and with PJDFSTEST=DIR, the suite's source, pjdfstest too. It
# prints go test's own lines and ends with 1 if any failed.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$top"
"$top/deploy/install.sh" test
"$top/deploy/build.sh"
"$top/deploy/image/build.sh"
export GOFLAGS="${GOFLAGS:-} -mod=readonly"

say "go vet"
go vet ./...
go vet -tags bench ./e2e

fuse_mounts() { awk '$3 ~ /^fuse/ {print $2}' /proc/mounts | sort; }
before=$(fuse_mounts)
failed=()
run() { # run NAME COMMAND...: goes on after a failure, so that one run shows all
	local name=$1 begin=$SECONDS
	shift
	say "$name"
	"$@" || failed+=("$name")
	say "$name: $((SECONDS - begin)) s"
}

# The race detector needs cgo and several times the memory and time: it is for
# the packages whose goroutines share state and that need no installation.
raced=(./api/... ./cmd/... ./fusefs/... ./mounts/... ./preview/... ./sandbox/...)
# -count=1: what these tests touch (mounts, containers, the engine) is no input
# that go's cache of results knows. -timeout gives a trace instead of a hang.
# -p 1 where mounts and containers of one package could disturb another's.
run "unit tests" go test -count=1 -timeout=10m .
run "package tests, with the race detector" go test -race -count=1 -p 2 -timeout=15m "${raced[@]}"
run "web page tests" npm --prefix preview/web test --silent
pages=(live states) # the looks at each width and in both colours are long
[ -z "${BERTH_SOAK:-}" ] || pages=()
run "web page in Chromium" npm --prefix preview/web run e2e --silent -- "${pages[@]}"
run "end-to-end tests" go test -count=1 -p 1 -timeout=20m ./e2e

# The long forms: many more random worlds and kills, and the fuzzers at work.
fuzz() { # fuzz PACKAGE: each fuzz target of it for half a minute
	local target
	for target in $(go test -list '^Fuzz' "$1" | grep '^Fuzz'); do
		run "$1 $target" go test -run '^$' -fuzz "^$target\$" -fuzztime 30s "$1"
	done
}
if [ -n "${BERTH_SOAK:-}" ]; then
	run "96 worlds of uploads under faults" go test -count=1 -timeout=60m -run '^TestModel$' ./fusefs/sync -seeds 96
	run "400,000 operations of fsx in each mode" go test -count=1 -timeout=60m -v -run '^TestFsx$' ./fusefs -fsx 100000 -fsx-seeds 4
	run "a walk over 1,000,000 files" go test -count=1 -timeout=20m -v -run '^TestManyFiles$' ./fusefs -files 1000000
	run "fio with verified blocks" go test -count=1 -timeout=30m -run '^TestFio$' ./fusefs -fio 256m
	[ -z "${PJDFSTEST:-}" ] || run "pjdfstest" "$top/deploy/pjdfstest.sh"
	run "100 kills of a file system" go test -v -count=1 -timeout=60m -run '^TestKill$' ./fusefs -kills 100
	run "40 power cuts" go test -v -count=1 -timeout=60m -run '^TestPowerCut$' ./fusefs -cuts 40
	run "a full disk and 10 minutes without the store" go test -v -count=1 -timeout=90m \
		-run '^(TestDiskFull|TestVolumeFilledByOthers|TestStoreAwayAndBack)$' ./fusefs -long -away 10m
	run "bug reports replayed at their size" go test -count=1 -timeout=60m -run '^TestReplays' ./fusefs -long
	run "one tree beside another's storm" go test -v -count=1 -timeout=10m -run '^TestStorm$' ./fusefs -storms
	run "64 machines hammered for long" go test -count=1 -timeout=30m -run '^TestViewsNeverMix$' ./mounts -hammer 100
	run "20 machines under restarts of mountd" go test -count=1 -timeout=30m -run '^TestMountdRestarts$' ./e2e -machines 20
	for package in ./api ./preview ./sandbox ./sandbox/agent ./fusefs/index ./fusefs/object ./fusefs/sync; do
		fuzz "$package"
	done
fi

# A test that leaves something behind disturbs whoever runs next.
left=$(comm -13 <(echo "$before") <(fuse_mounts))
[ -z "$left" ] || { say "FUSE mounts are left: $left"; failed+=("left-over mounts"); }

[ ${#failed[@]} = 0 ] || fail "$(IFS=,; echo "${failed[*]}") failed" "look for FAIL above"
say "all tests passed"
