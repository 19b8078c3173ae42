#!/bin/sh
# Makes of a container what a kubelet takes for a machine. Runs once per boot, before sysinit.target.
set -eu

# Cgroups of version 1 come read-only, but for systemd's own; kubelet and containerd make groups in all of them.
while read -r _ point kind options _; do
    case "$kind $options" in
    "cgroup ro"* | "cgroup2 ro"*) mount -o remount,bind,rw "$point" ;;
    esac
done </proc/self/mounts

# What these hold is the whole machine's, so that a node has its own of each: a file with the value that the machine has, writable, and lost with
# the boot as a real one's is. Nothing of it has an effect: it is what kubelets and operators write, and read back.
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

# A kubelet shares what it mounts with the pods, and pods with it.
mount --make-rshared /
