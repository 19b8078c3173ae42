//! A cluster, by the way to its apiserver and the credentials for it.

use std::{fmt, sync::Arc};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, PostParams};
use rustls_pki_types::ServerName;
use serde::{Deserialize, Serialize};

use crate::{
    answer,
    error::{KubeError, answered},
    kubeconfig::Kubeconfig,
    transport::{self, Connector},
};

/// Takes what a wait waits for, in words, for example `kubelet not ready (31 s)`.
pub type Progress<'a> = &'a (dyn Fn(String) + Send + Sync);

/// Where clients of the cluster reach its apiserver; also the name that its certificate must carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// An address or a DNS name.
    pub host: String,
    /// The port; 6443 for RKE2.
    pub port: u16,
}

impl Endpoint {
    pub(crate) fn authority(&self) -> String {
        match self.host.parse::<std::net::Ipv6Addr>() {
            Ok(host) => format!("[{host}]:{}", self.port),
            Err(_) => format!("{}:{}", self.host, self.port),
        }
    }

    pub(crate) fn server_name(&self) -> Result<ServerName<'static>, KubeError> {
        ServerName::try_from(self.host.clone())
            .map_err(|_| KubeError::Refusal(format!("{:?} is no address or name", self.host)))
    }
}

impl fmt::Display for Endpoint {
    /// As a URL: `https://10.0.0.4:6443`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.authority())
    }
}

/// A cluster whose calls can be made. Cheap to clone; clones share one connection, which is opened at the first call and
/// replaced when it dies.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) client: kube::Client,
    pub(crate) endpoint: Endpoint,
    pub(crate) ca_pem: Arc<str>,
    connector: Arc<dyn Connector>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// What an apiserver says that it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "camelCase"))]
pub struct ClusterVersion {
    /// For example `v1.36.3+rke2r1`.
    pub git_version: String,
}

/// Whom the apiserver takes the caller for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WhoAmI {
    /// For example `system:serviceaccount:gpuaas-access:access-1`.
    pub username: String,
    /// Its groups.
    pub groups: Vec<String>,
}

impl Cluster {
    /// A cluster behind `connector`, with the credentials and the CA of `kubeconfig`. The kubeconfig's own server address is not
    /// used: RKE2 writes `127.0.0.1`, which is true on the node alone. Opens nothing yet.
    pub fn new(kubeconfig: &Kubeconfig, endpoint: Endpoint, connector: Arc<dyn Connector>) -> Result<Self, KubeError> {
        let client = transport::client(kubeconfig, &endpoint, connector.clone())?;
        Ok(Self { client, endpoint, ca_pem: kubeconfig.ca_pem.as_str().into(), connector })
    }

    /// The same cluster over connections of its own, as seen with other credentials.
    pub fn with_credentials(&self, kubeconfig: &Kubeconfig) -> Result<Self, KubeError> {
        Self::new(kubeconfig, self.endpoint.clone(), self.connector.clone())
    }

    /// Where its clients reach it.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// For calls that this crate does not make. Carries all rights of the credentials.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The apiserver's version. Answered from memory: says nothing about readiness.
    pub async fn version(&self) -> Result<ClusterVersion, KubeError> {
        let (status, body) = answer::raw(&self.client, answer::get("/version")).await?;
        if !status.is_success() {
            return Err(answered(status.as_u16(), String::from_utf8_lossy(&body)));
        }
        serde_json::from_slice(&body).map_err(|error| KubeError::Unreadable(error.to_string()))
    }

    /// Whom the apiserver takes these credentials for; needs no right beyond being known.
    pub async fn whoami(&self) -> Result<WhoAmI, KubeError> {
        let api: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let review = answer::in_time(api.create(&PostParams::default(), &SelfSubjectReview::default())).await?;
        let user = review.status.and_then(|status| status.user_info).unwrap_or_default();
        Ok(WhoAmI { username: user.username.unwrap_or_default(), groups: user.groups.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_prints_as_a_url_for_every_kind_of_host() {
        let url = |host: &str| Endpoint { host: host.into(), port: 6443 }.to_string();
        assert_eq!(url("10.0.0.4"), "https://10.0.0.4:6443");
        assert_eq!(url("fd00::4"), "https://[fd00::4]:6443");
        assert_eq!(url("k8s.example"), "https://k8s.example:6443");
        assert!(Endpoint { host: String::new(), port: 1 }.server_name().is_err());
    }
}
