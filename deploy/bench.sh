#!/bin/bash
# bench.sh [OUT]: measures what a user waits for; OUT gets the figures as JSON.
# Of the environment: ONLY=small,git measures these groups of file system
# workloads and nothing else; SCALE (0.2) is their size, ROUNDS (1) how often
# each is run.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$top"
out=${1:-}
[ -z "$out" ] || out=$(realpath -m "$out")
"$top/deploy/install.sh" test
"$top/deploy/build.sh"
[ -n "${ONLY:-}" ] || "$top/deploy/image/build.sh"
# The file system's workloads are a script that several file systems are
# measured with; it is not part of this repository.
fsbench=${FSBENCH:-$top/../shared/bench/fsbench.sh}
fsbench=$(realpath -m "$fsbench")
[ -f "$fsbench" ] || { say "no $fsbench: the file system's workloads are left out (FSBENCH names another place)"; fsbench=""; }
cd e2e # where go test shows what a test prints
exec go test -tags bench -count=1 -timeout=60m -run '^TestBench$' -args -out "$out" -fsbench "$fsbench" \
	-only "${ONLY:-}" -scale "${SCALE:-0.2}" -rounds "${ROUNDS:-1}"
