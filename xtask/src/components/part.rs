//! The two separately built parts and their programs.

use super::VERSION;

/// A set of programs that is built together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Programs that a server on a sandbox node runs.
    ControlPlane,
    /// Programs that a booted node runs.
    Node,
}

impl Part {
    /// Description for messages.
    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::ControlPlane => "the Kubernetes components",
            Self::Node => "the programs of booted nodes",
        }
    }

    /// Programs that every folder of this part must contain.
    pub(super) const fn required(self) -> &'static [&'static str] {
        match self {
            Self::ControlPlane => &["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"],
            Self::Node => &[
                "bridge",
                "busybox",
                "containerd",
                "containerd-shim-runc-v2",
                "coredns",
                "flanneld",
                "host-local",
                "kubernetes",
                "loopback",
                "pause",
                "portmap",
                "runc",
            ],
        }
    }

    /// Programs that it may contain in addition.
    pub(super) const fn optional(self) -> &'static [&'static str] {
        match self {
            Self::ControlPlane => &["etcdctl"],
            Self::Node => &[],
        }
    }

    /// Name of its folder in the cache.
    pub(super) fn folder(self, digest: &str, kind: &str) -> String {
        match self {
            Self::ControlPlane => format!("{VERSION}-{digest}-{kind}"),
            Self::Node => format!("node-{VERSION}-{digest}-{kind}"),
        }
    }
}
