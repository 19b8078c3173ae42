#!/bin/sh
# Removes the stand-in from this node with everything it stored, then itself.
#
# As with the real script:
# - it deletes all of /etc/cni and /opt/cni/bin, also what was there before, and every rke2-*.service in /etc/systemd/system;
# - the first failure ends it; once it has reached the services, it removes itself even then;
# - the KubeNode and its password stay in the cluster.
# Unlike the real script, it leaves packages, SELinux policies and fapolicyd's rules alone: the stand-in brings none.

set -e

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

is_read_only() {
    ! { touch "$1/.rke2-ro-test" && rm -f "$1/.rke2-ro-test"; }
}

# The root that the real script looks in. On SUSE it may differ from the one that this script lies in.
like=
# The system's own file.
# shellcheck source=/dev/null
[ ! -r "$ROOT/etc/os-release" ] || like=$(. "$ROOT/etc/os-release" && echo "${ID_LIKE%% *}")
if [ "$like" = suse ] && { mountpoint -q "$ROOT/usr/local" || is_read_only "$ROOT/usr/local"; }; then
    : "${INSTALL_RKE2_ROOT:=/opt/rke2}"
fi
PREFIX="$ROOT${INSTALL_RKE2_ROOT:-/usr/local}"

"$(dirname "$0")/rke2-killall.sh"

tell() {
    [ "$1" = 0 ] || echo "Cleanup didn't complete successfully"
}

remove_self() {
    tell "$?"
    rm -f "$PREFIX/bin/rke2-uninstall.sh"
}
trap remove_self EXIT

for name in rke2-server rke2-agent; do
    unit disable "$name.service" || true
    unit reset-failed "$name.service" || true
done
unit daemon-reload

find "$PREFIX/lib/systemd/system" -name 'rke2-*.service' -delete
find "$PREFIX/lib/systemd/system" -name 'rke2-*.env' -delete
# A sandbox may be without the folder; a machine with systemd is not.
[ ! -d "$ROOT/etc/systemd/system" ] || find "$ROOT/etc/systemd/system" -name 'rke2-*.service' -delete
rm -f "$PREFIX/bin/rke2" "$PREFIX/bin/rke2-killall.sh"
rm -rf "$PREFIX/share/rke2"

rm -rf "$ROOT/etc/rancher/rke2" "$ROOT/etc/rancher/node" "$ROOT/etc/cni" "$ROOT/opt/cni/bin" \
    "$ROOT/var/lib/cni" "$ROOT/var/log/pods" "$ROOT/var/log/containers" "$ROOT/var/log/calico"
rmdir "$ROOT/etc/rancher" || true
rm -rf --one-file-system "$ROOT/var/lib/kubelet" || true
rm -rf "$DATA"
rmdir "$ROOT/var/lib/rancher" || true
