#!/bin/bash
# customize.sh ROOT: makes the machine's user and tools in the new root file
# system ROOT. mmdebstrap runs it (see build.sh, which sets DOWNLOADS).
set -euo pipefail
root=$1
here=$(cd "$(dirname "$0")" && pwd)

# The files of a view belong to this uid and gid (mountd's machine_uid).
chroot "$root" groupadd --gid 1000 user
chroot "$root" useradd --uid 1000 --gid 1000 --home-dir /home/user --create-home --shell /bin/bash user

# Node and npm from npm's registry: Debian's npm drags in hundreds of packages.
local=$root/usr/local
tar -xzf "$DOWNLOADS"/node.tgz -C "$local" --strip-components=1 --no-same-owner package/bin/node
mkdir -p "$local/lib/node_modules/npm"
tar -xzf "$DOWNLOADS"/npm.tgz -C "$local/lib/node_modules/npm" --strip-components=1 --no-same-owner
chmod 755 "$local/bin/node"
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$local/bin/npm"
ln -s ../lib/node_modules/npm/bin/npx-cli.js "$local/bin/npx"
chmod 755 "$local"/lib/node_modules/npm/bin/*.js

# The root is read-only in a machine, so what is installed "globally" goes to the home.
mkdir -p "$local/etc"
printf 'prefix=/home/user/.local\nupdate-notifier=false\nfund=false\naudit=false\n' >"$local/etc/npmrc"
printf '[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\n' >"$root/etc/pip.conf"

# A tree made by the gateway and used in a machine belongs to the same user in
# both, but git looks at each parent too.
git config --file "$root/etc/gitconfig" safe.directory '*'
git config --file "$root/etc/gitconfig" init.defaultBranch main
git config --file "$root/etc/gitconfig" user.name agent
git config --file "$root/etc/gitconfig" user.email agent@localhost

mkdir -p "$root/home/user/project" "$root/run/berth"
cp -r "$here/project/." "$root/home/user/project"
chown -R 0:0 "$root/home/user/project"

# Nothing in a machine may gain rights, and nothing there can install packages of the system.
find "$root" -xdev -type f -perm /6000 -exec chmod ug-s {} +
rm -rf "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/* "$root"/var/lib/apt/lists/* \
	"$root"/var/cache/apt/* "$root"/var/log/* "$root"/usr/share/doc/* "$root"/etc/resolv.conf "$root"/etc/hostname
: >"$root/etc/resolv.conf"
