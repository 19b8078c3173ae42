#!/bin/sh
# Ends everything that the stand-in runs on this node and keeps everything that it stored.
#
# Only processes whose program lies in this node's own data directory are ended, and what they started. Inside a sandbox node nothing
# outside its folder is touched: mounts, links and packet filter rules belong to the machine, not to the sandbox.

ROOT="${GPUAAS_SANDBOX_ROOT:-}"
ROOT="${ROOT%/}"
DATA="$ROOT${RKE2_DATA_DIR:-/var/lib/rancher/rke2}"

if [ -z "$ROOT" ] && [ "$(id -u)" != 0 ]; then
    echo "You need to be root to perform this killall" >&2
    exit 1
fi

set -x

unit() {
    if [ -z "$ROOT" ]; then
        systemctl "$@"
    elif [ -x "$ROOT/.sandbox/bin/systemctl" ]; then
        "$ROOT/.sandbox/bin/systemctl" "$@"
    fi
}

# Process ids of what outlives a stop, found by their program's path as the first argument: the shims of pods, in a sandbox the
# components.
survivors() {
    place=$(printf '%s' "$DATA" | sed 's/[][\.*^$+?(){}|/]/\\&/g')
    names='containerd-shim[^/]*|etcd|kube-apiserver|kube-controller-manager|kube-scheduler'
    LC_ALL=C grep -lasE "^$place/data/[^/]*/bin/($names)[^a-z-]" /proc/[0-9]*/cmdline | cut -d/ -f3
}

# The given processes and everything below them: a shim that is killed ends no container.
with_children() {
    cat /proc/[0-9]*/stat 2>/dev/null | sed 's/^\([0-9]*\) (.*) . \([0-9]*\) .*/\1 \2/' | awk -v roots="$*" '
        BEGIN { n = split(roots, list, " "); for (i = 1; i <= n; i++) wanted[list[i]] = 1 }
        { parent[$1] = $2 }
        END {
            do {
                grown = 0
                for (pid in parent) if (!(pid in wanted) && parent[pid] in wanted) { wanted[pid] = 1; grown = 1 }
            } while (grown)
            for (pid in wanted) print pid
        }'
}

end_survivors() {
    # A killed process is found until it is gone; a hundred looks take about a second.
    round=0
    while pids=$(survivors) && [ -n "$pids" ] && [ "$round" -lt 100 ]; do
        # Word by word: these are numbers.
        # shellcheck disable=SC2046,SC2086
        kill -9 $(with_children $pids) 2>/dev/null
        round=$((round + 1))
    done
}

release_mounts() {
    for prefix in "$ROOT/run/k3s" "$ROOT/var/lib/kubelet/pods" "$ROOT/run/netns/cni-"; do
        awk -v prefix="$prefix" 'index($2, prefix) == 1 { print $2 }' /proc/self/mounts | sort -r | while read -r mount; do
            umount "$mount" && rm -rf --one-file-system "$mount"
        done
    done
}

release_network() {
    [ -z "$ROOT" ] || return 0
    ip -o link show master cni0 2>/dev/null | awk -F': ' '{ print $2 }' | while read -r link; do
        ip link delete "${link%%@*}"
    done
    for link in cni0 flannel.1 flannel.4096 flannel-v6.1 flannel-v6.4096 flannel-wg flannel-wg-v6 vxlan.calico vxlan-v6.calico \
        cilium_vxlan cilium_net cilium_wg0 kube-ipvs0; do
        ip link delete "$link"
    done
    if [ -d /sys/class/net/nodelocaldns ]; then
        ip -o address show nodelocaldns | awk '{ print $4 }' | while read -r address; do
            iptables-save | grep -v "$address" | iptables-restore
        done
        ip link delete nodelocaldns
    fi
    for family in iptables ip6tables; do
        command -v $family-save >/dev/null || continue
        $family-save | grep -v -e KUBE- -e CNI- -e cali- -e cali: -e flannel -e CILIUM_ | $family-restore
    done
}

unit stop rke2-server.service
unit stop rke2-agent.service
end_survivors
release_mounts
release_network
for pod in etcd kube-apiserver kube-controller-manager cloud-controller-manager kube-scheduler kube-proxy; do
    rm -f "$DATA/agent/pod-manifests/$pod.yaml"
done
exit 0
