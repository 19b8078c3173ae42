//! The two parts that are built apart, and which programs each has.

use super::VERSION;

/// What is built together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What a server on a sandbox node runs.
    ControlPlane,
    /// What a booted node runs.
    Node,
}

impl Part {
    /// In words, for messages.
    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::ControlPlane => "the Kubernetes components",
            Self::Node => "the programs of booted nodes",
        }
    }

    /// What every folder of this part must hold.
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

    /// What it may hold besides.
    pub(super) const fn optional(self) -> &'static [&'static str] {
        match self {
            Self::ControlPlane => &["etcdctl"],
            Self::Node => &[],
        }
    }

    /// The name of its folder in the cache.
    pub(super) fn folder(self, digest: &str, kind: &str) -> String {
        match self {
            Self::ControlPlane => format!("{VERSION}-{digest}-{kind}"),
            Self::Node => format!("node-{VERSION}-{digest}-{kind}"),
        }
    }
}
