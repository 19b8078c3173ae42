#!/bin/sh
# Removes the stand-in from this node with everything it stored, then itself.
#
# As with the real script, all of /etc/cni and /opt/cni/bin goes too, also what was there before; the KubeNode and its
# password stay in the cluster.

ROOT="${GPUAAS_SANDBOX_ROOT:-}"
ROOT="${ROOT%/}"
DATA="$ROOT${RKE2_DATA_DIR:-/var/lib/rancher/rke2}"

if [ -z "$ROOT" ] && [ "$(id -u)" != 0 ]; then
    echo "You need to be root to perform this uninstall" >&2
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

"$ROOT/usr/local/bin/rke2-killall.sh"

for name in rke2-server rke2-agent; do
    unit disable "$name.service"
    unit reset-failed "$name.service"
    rm -f "$ROOT/usr/local/lib/systemd/system/$name.service" "$ROOT/usr/local/lib/systemd/system/$name.env"
done
unit daemon-reload

rm -rf "$ROOT/etc/rancher/rke2" "$ROOT/etc/rancher/node" "$ROOT/etc/cni" "$ROOT/opt/cni/bin"
rmdir "$ROOT/etc/rancher" 2>/dev/null
rm -rf --one-file-system "$ROOT/var/lib/kubelet"
rm -rf "$ROOT/var/lib/cni" "$ROOT/var/log/pods" "$ROOT/var/log/containers" "$ROOT/var/log/calico"
rm -rf "$DATA"
rmdir "$ROOT/var/lib/rancher" 2>/dev/null
rm -rf "$ROOT/usr/local/share/rke2"
rm -f "$ROOT/usr/local/bin/rke2" "$ROOT/usr/local/bin/rke2-killall.sh" "$ROOT/usr/local/bin/rke2-uninstall.sh"
exit 0
