#!/bin/bash
# install.sh run|test: installs what is missing on a Debian machine to run
# berth, or to test it too, and starts a Docker engine where no systemd does.
# It can be run again and again; what is there is left as it is.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mode=${1:-run}
case $mode in run | test) ;; *) fail "unknown mode '$mode'" "use: deploy/install.sh run|test" ;; esac

packages_run=(ca-certificates e2fsprogs fuse3 mmdebstrap procps util-linux)
packages_test=(chromium curl fio fonts-dejavu-core gcc git libc6-dev python3 ripgrep rsync sqlite3 vim-tiny xfsprogs)

check_toolchain() {
	have go || fail "Go is missing" "install the Go release named in go.mod and put it on PATH"
	have git || fail "git is missing" "apt-get install git"
	have node && have npm || fail "Node or npm is missing" "install Node 20 or newer with npm"
	local major
	major=$(node -p 'process.versions.node.split(".")[0]')
	[ "$major" -ge 20 ] || fail "Node $major is too old to build the web page" "install Node 20 or newer"
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

install_packages() {
	local missing=() p
	for p in "$@"; do installed "$p" || missing+=("$p"); done
	if [ ${#missing[@]} = 0 ]; then
		say "packages: all there"
		return
	fi
	have apt-get || fail "packages are missing (${missing[*]}) and this is no Debian machine" "install them with the system's own tools"
	local log=/var/log/berth-install.log
	say "installing ${missing[*]} (log: $log)"
	export DEBIAN_FRONTEND=noninteractive
	# Another apt may be at work on a machine that has just started.
	local apt=(apt-get -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
	"${apt[@]}" update >>"$log" 2>&1 ||
		fail "apt-get update did not succeed: $(tail -n 1 "$log")" "look at $log: the network, or the sources in /etc/apt"
	"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1 ||
		fail "apt-get could not install them: $(grep '^E:' "$log" | tail -n 1)" "look at $log"
}

# The kernel's FUSE device may be there without its node, as in a bare container.
ensure_fuse() {
	[ -c /dev/fuse ] || modprobe fuse 2>/dev/null || true
	if [ ! -c /dev/fuse ] && grep -qw fuse /proc/filesystems; then
		mknod -m 666 /dev/fuse c 10 229 2>/dev/null || true
	fi
	[ -c /dev/fuse ] || fail "there is no /dev/fuse: this kernel has no FUSE, or the container may not use it" \
		"load the fuse module, or give the container the device /dev/fuse and the capability SYS_ADMIN"
}

check_toolchain
need_root
packages=("${packages_run[@]}")
# Any engine will do: Docker's own packages are not replaced by Debian's.
have dockerd || [ -n "${DOCKER_HOST:-}" ] || packages+=(docker.io)
[ "$mode" = run ] || packages+=("${packages_test[@]}")
install_packages "${packages[@]}"
have docker || install_packages docker-cli
ensure_fuse
"$top/deploy/engine.sh"
