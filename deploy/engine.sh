#!/bin/bash
# Makes a Docker engine answer: does nothing if one does, asks systemd where it
# runs, and else starts dockerd itself, clearing what a killed one left.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

log=/var/log/berth-dockerd.log
patience=60 # seconds until the engine must answer

answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

await() { # await PID: 0 = it answers, 1 = the process ended or the time is over
	local until=$((SECONDS + patience))
	while [ $SECONDS -lt $until ]; do
		answers && return 0
		[ -z "$1" ] || kill -0 "$1" 2>/dev/null || return 1
		sleep 0.3
	done
	return 1
}

# runs FILE NAME: whether the pid in FILE is a live process of that name. After
# a crash or a reboot the number may belong to anything else, and dockerd would
# take that for an engine or a containerd that runs.
runs() {
	local pid
	pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ]
}

clear_stale() {
	local f=/var/run/docker/containerd/containerd.pid
	if [ -e $f ] && ! runs $f containerd; then
		say "removing $f, which an engine that was killed left"
		rm -f $f
	fi
	if [ -e /var/run/docker.pid ]; then
		say "removing /var/run/docker.pid, which an engine that was killed left"
		rm -f /var/run/docker.pid
	fi
	[ ! -S /var/run/docker.sock ] || rm -f /var/run/docker.sock
}

# dockerd wants cgroups; on a machine without an init system nobody mounted them.
ensure_cgroups() {
	if ! mountpoint -q /sys/fs/cgroup; then
		say "mounting cgroups"
		mount_cgroups_v2 || mount_cgroups_v1 ||
			fail "cannot mount cgroups on /sys/fs/cgroup" "run this on a machine, or in a container that may mount"
	fi
	[ ! -e /sys/fs/cgroup/cgroup.controllers ] || delegate_controllers
}

# Version 2 is no good where another mount has taken its controllers.
mount_cgroups_v2() {
	mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null || return 1
	grep -qw memory /sys/fs/cgroup/cgroup.controllers || { umount /sys/fs/cgroup && return 1; }
}

mount_cgroups_v1() {
	local controller
	mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup || return 1
	for controller in $(awk '!/^#/ && $4 == 1 {print $1}' /proc/cgroups); do
		mkdir -p "/sys/fs/cgroup/$controller"
		mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller" || rmdir "/sys/fs/cgroup/$controller"
	done
	mountpoint -q /sys/fs/cgroup/memory
}

# In a container the root group of cgroup v2 holds processes, and a group that
# does may not hand out controllers: they move to a group of their own.
delegate_controllers() {
	local root=/sys/fs/cgroup pid controllers
	grep -qw memory $root/cgroup.subtree_control 2>/dev/null && return 0
	controllers=$(sed 's/[^ ]*/+&/g' $root/cgroup.controllers)
	echo "$controllers" 2>/dev/null >$root/cgroup.subtree_control && return 0
	mkdir -p $root/init
	while read -r pid; do
		echo "$pid" 2>/dev/null >$root/init/cgroup.procs || true
	done <$root/cgroup.procs
	echo "$controllers" 2>/dev/null >$root/cgroup.subtree_control ||
		say "cgroup controllers cannot be handed out: limits of memory and CPU may not hold"
}

start() { # start ARGS...: starts dockerd and waits for it
	say "starting dockerd $* (log: $log)"
	(
		ulimit -n 1048576 2>/dev/null || true
		exec setsid dockerd "$@" >>"$log" 2>&1 </dev/null
	) &
	await $!
}

if answers; then
	say "Docker engine: it answers"
	exit 0
fi
[ -z "${DOCKER_HOST:-}" ] || fail "the Docker engine at DOCKER_HOST does not answer" "start it, or unset DOCKER_HOST to use one of this machine"
need_root
have dockerd || fail "there is no dockerd" "run deploy/install.sh run"
if [ -d /run/systemd/system ]; then
	say "starting the Docker engine with systemd"
	systemctl enable --now docker >&2 || true
	await "" || fail "the Docker engine does not answer" "look at: journalctl -u docker"
	exit 0
fi
if runs /var/run/docker.pid dockerd; then
	say "waiting for the dockerd that runs"
	await "" || fail "dockerd runs (pid $(cat /var/run/docker.pid)) but does not answer" "end it and run this again"
	exit 0
fi
clear_stale
ensure_cgroups
# Machines have no network interface: an engine that cannot set up its bridge
# on this kernel is good enough.
start || { clear_stale && start --iptables=false --ip6tables=false --bridge=none; } ||
	fail "dockerd does not start: $(grep -E 'level=(error|fatal)|^failed' "$log" | tail -n 1)" "the whole story is in $log"
