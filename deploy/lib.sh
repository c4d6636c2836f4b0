# What the scripts in deploy/ share. Source it; it sets `top`, the checkout.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin # where a plain shell may not look: mkfs, dockerd, useradd
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# The downloads and the machine's root file system are kept here, outside the
# checkout, so that a fresh clone does not make them again.
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/berth

say() { printf '==> %s\n' "$*" >&2; }

# fail CAUSE [REMEDY] ends the script.
fail() {
	printf 'cannot go on: %s\n' "$1" >&2
	[ $# -lt 2 ] || printf '  what to do: %s\n' "$2" >&2
	exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

need_root() {
	[ "$(id -u)" = 0 ] || fail "this needs root: it mounts file systems and starts a Docker engine" "run it again as root, for example with sudo"
}
