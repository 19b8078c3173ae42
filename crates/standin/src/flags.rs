//! RKE2's options, on the command line and, without their dashes, as keys of config.yaml.
//!
//! Defines only which options exist and how they take values; `settings` interprets them. K3s options that RKE2 drops are absent.

/// How an option takes its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `--x` or `--x=false`.
    Switch,
    /// `--x value` or `--x=value`; the last value given wins.
    Value,
    /// As [`Shape::Value`], but every value given counts.
    List,
}

/// Parses the value of a switch as Go's `strconv.ParseBool` does; none for any other text.
pub(crate) fn switch_value(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Returns the shape of `name`, or none if RKE2 has no such option.
pub(crate) fn shape(name: &str) -> Option<Shape> {
    let known = |table: &[&str]| table.contains(&name);
    if known(SWITCHES) {
        Some(Shape::Switch)
    } else if known(VALUES) {
        Some(Shape::Value)
    } else if known(LISTS) {
        Some(Shape::List)
    } else {
        None
    }
}

const SWITCHES: &[&str] = &[
    "cluster-reset",
    "debug",
    "disable-apiserver",
    "disable-cloud-controller",
    "disable-controller-manager",
    "disable-default-registry-endpoint",
    "disable-etcd",
    "disable-kube-proxy",
    "disable-scheduler",
    "embedded-registry",
    "enable-pprof",
    "enable-servicelb",
    "etcd-disable-snapshots",
    "etcd-expose-metrics",
    "etcd-s3",
    "etcd-s3-insecure",
    "etcd-s3-skip-ssl-verify",
    "etcd-snapshot-compress",
    "node-name-from-cloud-provider-metadata",
    "nonroot-devices",
    "prefer-bundled-bin",
    "prime",
    "protect-kernel-defaults",
    "secrets-encryption",
    "selinux",
    "supervisor-metrics",
    "tls-san-security",
    "with-node-id",
];

const VALUES: &[&str] = &[
    "advertise-address",
    "agent-token",
    "agent-token-file",
    "airgap-extra-registry",
    "audit-policy-file",
    "bind-address",
    "cloud-controller-manager-image",
    "cloud-provider-config",
    "cloud-provider-name",
    "cluster-domain",
    "cluster-reset-restore-path",
    "config",
    "container-runtime-endpoint",
    "data-dir",
    "datastore-cafile",
    "datastore-certfile",
    "datastore-endpoint",
    "datastore-keyfile",
    "default-runtime",
    "egress-selector-mode",
    "etcd-image",
    "etcd-s3-access-key",
    "etcd-s3-bucket",
    "etcd-s3-config-secret",
    "etcd-s3-endpoint",
    "etcd-s3-endpoint-ca",
    "etcd-s3-folder",
    "etcd-s3-region",
    "etcd-s3-retention",
    "etcd-s3-secret-key",
    "etcd-s3-session-token",
    "etcd-s3-timeout",
    "etcd-snapshot-dir",
    "etcd-snapshot-name",
    "etcd-snapshot-retention",
    "etcd-snapshot-schedule-cron",
    "helm-job-image",
    "image-credential-provider-bin-dir",
    "image-credential-provider-config",
    "ingress-controller",
    "kube-apiserver-image",
    "kube-controller-manager-image",
    "kube-proxy-image",
    "kube-scheduler-image",
    "kubelet-path",
    "lb-server-port",
    "log",
    "node-name",
    "pause-image",
    "pod-security-admission-config-file",
    "private-registry",
    "profile",
    "resolv-conf",
    "runtime-image",
    "secrets-encryption-provider",
    "server",
    "service-node-port-range",
    "snapshotter",
    "system-default-registry",
    "token",
    "token-file",
    "vpn-auth",
    "write-kubeconfig",
    "write-kubeconfig-group",
    "write-kubeconfig-mode",
    "write-kubeconfig-name",
];

const LISTS: &[&str] = &[
    "cloud-controller-manager-extra-env",
    "cloud-controller-manager-extra-mount",
    "cluster-cidr",
    "cluster-dns",
    "cni",
    "control-plane-probe-configuration",
    "control-plane-resource-limits",
    "control-plane-resource-requests",
    "disable",
    "etcd-arg",
    "etcd-extra-env",
    "etcd-extra-mount",
    "kube-apiserver-arg",
    "kube-apiserver-extra-env",
    "kube-apiserver-extra-mount",
    "kube-cloud-controller-manager-arg",
    "kube-controller-manager-arg",
    "kube-controller-manager-extra-env",
    "kube-controller-manager-extra-mount",
    "kube-proxy-arg",
    "kube-proxy-extra-env",
    "kube-proxy-extra-mount",
    "kube-scheduler-arg",
    "kube-scheduler-extra-env",
    "kube-scheduler-extra-mount",
    "kubelet-arg",
    "node-external-dns",
    "node-external-ip",
    "node-internal-dns",
    "node-ip",
    "node-label",
    "node-taint",
    "service-cidr",
    "tls-san",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_rke2_drops_from_k3s_are_unknown() {
        for dropped in ["https-listen-port", "supervisor-port", "cluster-init", "docker", "flannel-backend"] {
            assert_eq!(shape(dropped), None, "{dropped}");
        }
    }

    #[test]
    fn no_option_has_two_shapes() {
        for name in SWITCHES {
            assert!(!VALUES.contains(name) && !LISTS.contains(name), "{name}");
        }
        for name in VALUES {
            assert!(!LISTS.contains(name), "{name}");
        }
    }
}
