#!/bin/bash
# Builds bin/berth, with the web page in it, and the static bin/berth-agent.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$top"
export GOFLAGS="${GOFLAGS:-} -mod=readonly"

# The page is built anew when one of its sources changed.
build_web() {
	local web=preview/web stamp=build/web.stamp now
	now=$(cd "$top" && find $web -type f -not -path '*/node_modules/*' -not -path "$web/dist/*" -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
	if [ -f $web/dist/index.html ] && [ "$(cat $stamp 2>/dev/null)" = "$now" ]; then
		say "web page: up to date"
		return
	fi
	say "building the web page"
	(cd $web && npm ci --no-fund --no-audit --loglevel=error >&2 && npm run --silent build -- --logLevel warn >&2) ||
		fail "the web page does not build" "look at npm's message above"
	mkdir -p build
	echo "$now" >$stamp
}

mkdir -p bin
build_web
say "building bin/berth-agent"
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/berth-agent ./cmd/berth-agent
say "building bin/berth"
CGO_ENABLED=0 go build -trimpath -o bin/berth ./cmd/berth
