//! What kubelet and kube-proxy have to know of their cluster.

use anyhow::Context as _;
use serde::Deserialize;

use crate::settings::Settings;

/// The cluster's networks and names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Cluster {
    #[serde(rename = "ClusterIPRange")]
    pub(super) cidr: String,
    #[serde(rename = "ClusterDomain")]
    pub(super) domain: String,
    #[serde(rename = "ClusterDNS")]
    pub(super) dns: String,
}

impl Cluster {
    /// Of a server, whose settings decide.
    pub(super) fn of(settings: &Settings) -> Self {
        let (cidr, domain, dns) = (&settings.cluster_cidr, &settings.cluster_domain, &settings.cluster_dns);
        Self { cidr: cidr.clone(), domain: domain.clone(), dns: dns.clone() }
    }

    /// Of an agent, which is told by its server.
    pub(super) fn told(config: &serde_json::Value) -> anyhow::Result<Self> {
        Self::deserialize(config).context("the server's configuration is not usable")
    }
}
