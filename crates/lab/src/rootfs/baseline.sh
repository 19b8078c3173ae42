#!/bin/sh
# Prepares a container so that a kubelet accepts it as a machine. Runs once per boot, before sysinit.target.
set -eu

# Cgroups of version 1 are mounted read-only, except systemd's own; kubelet and containerd create groups in all of them.
while read -r _ point kind options _; do
    case "$kind $options" in
    "cgroup ro"* | "cgroup2 ro"*) mount -o remount,bind,rw "$point" ;;
    esac
done </proc/self/mounts

# These parameters are shared by the whole machine, so each node gets its own files with the present values. The files are writable and lost at
# the next boot, like real parameters. A value written there has no effect: kubelets and operators only read it back.
own=/run/gpuaas-lab/sysctl
mkdir -p "$own"
for name in \
    fs/file-max fs/inotify/max_queued_events fs/inotify/max_user_instances fs/inotify/max_user_watches \
    kernel/keys/root_maxbytes kernel/keys/root_maxkeys kernel/panic kernel/panic_on_oops kernel/pid_max \
    vm/max_map_count vm/overcommit_memory vm/panic_on_oom vm/swappiness; do
    [ -e "/proc/sys/$name" ] || continue
    file=$own/$(echo "$name" | tr / .)
    cat "/proc/sys/$name" >"$file"
    mount --bind "$file" "/proc/sys/$name"
done

# Kubelet and pods share their mounts with each other.
mount --make-rshared /
