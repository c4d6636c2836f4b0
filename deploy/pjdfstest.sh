#!/bin/bash
# pjdfstest.sh: runs pjdfstest on a mount of berth and on a plain directory side
# by side, with passthrough and without, and fails for each assertion that the
# directory passes, the mount does not, and pjdfstest.exceptions does not name.
#   PJDFSTEST=DIR  the suite's source (github.com/pjd/pjdfstest); not changed
#   JOBS=6         test files at a time; most of them sleep
#   OUT=DIR        where the logs go; default: a temporary directory
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_root
suite=${PJDFSTEST:-}
[ -f "$suite/pjdfstest.c" ] || fail "PJDFSTEST does not name the suite's source" "git clone https://github.com/pjd/pjdfstest DIR; PJDFSTEST=DIR deploy/pjdfstest.sh"
have gcc && have openssl || fail "gcc or openssl is missing" "deploy/install.sh test"
work=$(mktemp -d "${TMPDIR:-/tmp}/berth-pjdfstest-XXXXXX")
out=${OUT:-$work/out}
pid=""
cleanup() {
	[ -z "$pid" ] || { kill "$pid" && wait "$pid"; } 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT

say "building the suite and berth"
mkdir -p "$work/suite" "$out"
cp -r "$suite/tests" "$suite/pjdfstest.c" "$work/suite"
for f in FCHMODAT FCHOWNAT FSTATAT LINKAT MKDIRAT MKFIFOAT MKNODAT OPENAT POSIX_FALLOCATE RENAMEAT SYMLINKAT UNLINKAT UTIMENSAT \
	STRUCT_STAT_ST_ATIM STRUCT_STAT_ST_CTIM STRUCT_STAT_ST_MTIM SYS_SYSMACROS_H; do
	echo "#define HAVE_$f 1"
done >"$work/suite/config.h"
gcc -D_GNU_SOURCE -O1 -w -I"$work/suite" -o "$work/suite/pjdfstest" "$work/suite/pjdfstest.c"
# A mount of berth has no device nodes. Tests that go through all types of file
# leave them out, so that what they say of the other types counts.
find "$work/suite/tests" -name '*.t' -exec sed -i -E '/^[[:space:]]*for type/s/ block char / /' {} +
# By the name of the file system the suite leaves out what it thinks is missing: it
# shall ask of the mount all that it asks of ext4.
echo 'fs=EXT4' >>"$work/suite/tests/conf"
(cd "$top" && go build -o "$work/berth" ./cmd/berth)

# suite DIR LOGS runs all tests in a directory.
suite() {
	mkdir -p "$1" "$2"
	(cd "$1" && find "$work/suite/tests" -name '*.t' | sort |
		xargs -P "${JOBS:-6}" -I{} sh -c 'n=${1#*/tests/}; sh "$1" >"$2/$(echo "$n" | tr / _).log" 2>&1 || true' _ {} "$2")
}

# failures LOGS prints FILE NUMBER of each assertion that failed or was not made.
failures() {
	local log name
	for log in "$1"/*.log; do
		name=$(basename "$log" .log | tr _ /)
		name=${name/posix\/fallocate/posix_fallocate}
		awk -v name="$name" '/^not ok/ && !/# TODO/ {print name, $3} /Bail out/ {print name, 0}' "$log"
	done | sort
}

# asserted LOGS counts the assertions.
asserted() { cat "$1"/*.log | grep -cE '^(not )?ok'; }

# excepted prints FILE NUMBER of each exception.
excepted() {
	awk '!/^#/ && NF {n = split($2, parts, ","); for (i = 1; i <= n; i++) {m = split(parts[i], r, "-"); for (j = r[1]; j <= r[m]; j++) print $1, j}}' \
		"$top/deploy/pjdfstest.exceptions" | sort
}

# mounted NAME [FLAG...] runs the suite on a mount; what it fails beyond the
# exceptions is printed.
mounted() {
	local name=$1
	shift
	mkdir -p "$work/$name" "$work/$name-state"
	"$work/berth" mount --state "$work/$name-state" "$@" "$work/$name" >"$out/$name.mount" 2>&1 &
	pid=$!
	until grep -q 'is mounted' "$out/$name.mount"; do
		kill -0 "$pid" 2>/dev/null || fail "berth did not mount: $(cat "$out/$name.mount")"
		sleep 0.1
	done
	say "$(cat "$out/$name.mount")"
	suite "$work/$name/suite" "$out/$name"
	kill "$pid"
	wait "$pid" || fail "berth ended with an error: $(cat "$out/$name.mount")"
	pid=""
	failures "$out/$name" >"$out/$name.failed"
	comm -23 "$out/$name.failed" "$out/plain.failed" | comm -23 - <(excepted) >"$out/$name.unexpected"
	say "$name: $(asserted "$out/$name") assertions, $(wc -l <"$out/$name.failed") failed, $(wc -l <"$out/$name.unexpected") unexpected"
}

say "on a plain directory ($(stat -f -c %T "$work"))"
suite "$work/plain" "$out/plain"
failures "$out/plain" >"$out/plain.failed"
say "plain: $(asserted "$out/plain") assertions, $(wc -l <"$out/plain.failed") failed"
mounted passthrough
mounted mediated --no-passthrough
for name in passthrough mediated; do
	while read -r file number; do
		log=$out/$name/$(echo "$file" | tr / _).log
		say "$name: $file: $(grep -E "^not ok $number( |\$)|Bail out" "$log" | head -n 1 | cut -c1-300)"
	done <"$out/$name.unexpected"
	gone=$(comm -13 "$out/$name.failed" <(excepted))
	[ -z "$gone" ] || say "$name: exceptions that passed: $(echo "$gone" | tr '\n' ';')"
done
[ ! -s "$out/passthrough.unexpected" ] && [ ! -s "$out/mediated.unexpected" ] || fail "the mount fails what a plain directory passes"
say "the mount passes what a plain directory passes, but for the exceptions"
