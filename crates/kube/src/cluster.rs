//! A cluster, by the way to its apiserver and the credentials for it.

use std::{fmt, sync::Arc};

use http::Method;
use rustls_pki_types::ServerName;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    calls::{Admission, Call, Calls},
    dial::Connector,
    error::{KubeError, bounded},
    json::AtMost,
    kubeconfig::Kubeconfig,
};

/// Most groups that are kept of a caller; an admin has two.
const GROUPS_MAX: usize = 64;

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
    pub(crate) calls: Arc<Calls>,
    pub(crate) endpoint: Endpoint,
    pub(crate) ca_pem: Arc<str>,
    connector: Arc<dyn Connector>,
    admission: Option<Arc<dyn Admission>>,
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
    /// used: RKE2 writes `127.0.0.1`, which is true on the node alone. Opens nothing yet, and makes every call as soon as it is asked.
    pub fn new(kubeconfig: &Kubeconfig, endpoint: Endpoint, connector: Arc<dyn Connector>) -> Result<Self, KubeError> {
        Self::with(kubeconfig, endpoint, connector, None)
    }

    /// The same, with every call made when `admission` allows it.
    pub fn admitted(
        kubeconfig: &Kubeconfig,
        endpoint: Endpoint,
        connector: Arc<dyn Connector>,
        admission: Arc<dyn Admission>,
    ) -> Result<Self, KubeError> {
        Self::with(kubeconfig, endpoint, connector, Some(admission))
    }

    fn with(
        kubeconfig: &Kubeconfig,
        endpoint: Endpoint,
        connector: Arc<dyn Connector>,
        admission: Option<Arc<dyn Admission>>,
    ) -> Result<Self, KubeError> {
        let calls = Calls::new(kubeconfig, &endpoint, connector.clone(), admission.clone())?;
        let (calls, ca_pem) = (Arc::new(calls), kubeconfig.ca_pem.as_str().into());
        Ok(Self { calls, endpoint, ca_pem, connector, admission })
    }

    /// The same cluster over connections of its own, as seen with other credentials; its calls are admitted as these are.
    pub fn with_credentials(&self, kubeconfig: &Kubeconfig) -> Result<Self, KubeError> {
        Self::with(kubeconfig, self.endpoint.clone(), self.connector.clone(), self.admission.clone())
    }

    /// Where its clients reach it.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Makes a call that this crate does not know, with all rights of the credentials; returns the object of a success. Bounded as every call.
    pub async fn request(
        &self,
        method: Method,
        target: &str,
        body: Option<(&'static str, Value)>,
    ) -> Result<Value, KubeError> {
        let call = Call::new(method, target);
        let call = match body {
            Some((media_type, body)) => call.with(media_type, body),
            None => call,
        };
        self.calls.make(call).await?.object()
    }

    /// The apiserver's version. Answered from memory: says nothing about readiness.
    pub async fn version(&self) -> Result<ClusterVersion, KubeError> {
        let told: ClusterVersion = self.calls.make(Call::get("/version")).await?.object()?;
        Ok(ClusterVersion { git_version: bounded(&told.git_version) })
    }

    /// Whom the apiserver takes these credentials for; needs no right beyond being known.
    pub async fn whoami(&self) -> Result<WhoAmI, KubeError> {
        let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let call = Call::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review);
        let user = self.calls.make(call).await?.object::<SelfSubjectReview>()?.status.user_info;
        Ok(WhoAmI { username: bounded(&user.username), groups: user.groups.0.iter().map(|of| bounded(of)).collect() })
    }
}

#[derive(Deserialize)]
struct SelfSubjectReview {
    status: SelfSubjectReviewStatus,
}

#[derive(Deserialize)]
struct SelfSubjectReviewStatus {
    #[serde(rename = "userInfo")]
    user_info: UserInfo,
}

#[derive(Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: AtMost<String, GROUPS_MAX>,
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
