//! The cluster's settings that kubelet and kube-proxy need.

use anyhow::Context as _;
use serde::Deserialize;

use crate::settings::Settings;

/// Pod network, domain and DNS address of the cluster.
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
    /// Takes the values from a server's own settings.
    pub(super) fn of(settings: &Settings) -> Self {
        let (cidr, domain, dns) = (&settings.cluster_cidr, &settings.cluster_domain, &settings.cluster_dns);
        Self { cidr: cidr.clone(), domain: domain.clone(), dns: dns.clone() }
    }

    /// Parses the response of `/v1-rke2/config` for an agent.
    pub(super) fn from_config(config: &serde_json::Value) -> anyhow::Result<Self> {
        Self::deserialize(config).context("invalid configuration from the server")
    }
}
