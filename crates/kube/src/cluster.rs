//! A cluster: the connector to its apiserver and the credentials for it.

use std::{fmt, sync::Arc};

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    calls::{Admission, Call, Calls},
    connector::Connector,
    endpoint::Endpoint,
    error::KubeError,
    json::AtMost,
    kubeconfig::Kubeconfig,
    text::bounded,
};

/// Most groups of a caller that are read; an admin has two.
const GROUPS_MAX: usize = 64;

/// Receives a description of what a wait is waiting for, for example `kubelet not ready (31 s)`.
pub type Progress<'a> = &'a (dyn Fn(String) + Send + Sync);

/// A client of one cluster. Cheap to clone; clones share one connection, which is opened at the first call and replaced when it closes or
/// breaks.
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

/// The version that an apiserver reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "camelCase"))]
pub struct ClusterVersion {
    /// For example `v1.36.3+rke2r1`.
    pub git_version: String,
}

/// The user as which the apiserver authenticates the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WhoAmI {
    /// For example `system:serviceaccount:gpuaas-access:access-1`.
    pub username: String,
    /// The user's groups, at most 64.
    pub groups: Vec<String>,
}

impl Cluster {
    /// Returns a client that connects through `connector`, with the credentials and the CA of `kubeconfig`. The kubeconfig's own server
    /// address is not used: RKE2 writes `127.0.0.1`, which is only valid on the node. Opens no connection yet, and makes every call without
    /// waiting for a permit.
    pub fn new(kubeconfig: &Kubeconfig, endpoint: Endpoint, connector: Arc<dyn Connector>) -> Result<Self, KubeError> {
        Self::with(kubeconfig, endpoint, connector, None)
    }

    /// Like [`Cluster::new`], but every call waits for a permit of `admission`.
    pub fn with_admission(
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

    /// Returns a client for the same cluster with other credentials, its own connection and the same admission.
    pub fn with_credentials(&self, kubeconfig: &Kubeconfig) -> Result<Self, KubeError> {
        Self::with(kubeconfig, self.endpoint.clone(), self.connector.clone(), self.admission.clone())
    }

    /// Returns the address at which clients of the cluster reach it.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Makes any other call, with all rights of the credentials; returns the object of a successful answer. Has the limits of every call.
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

    /// Returns the apiserver's version. It is answered from memory and does not show readiness.
    pub async fn version(&self) -> Result<ClusterVersion, KubeError> {
        let version: ClusterVersion = self.calls.make(Call::get("/version")).await?.object()?;
        Ok(ClusterVersion { git_version: bounded(&version.git_version) })
    }

    /// Deletes an object; returns `false` if it does not exist.
    pub(crate) async fn delete(&self, target: String) -> Result<bool, KubeError> {
        match self.calls.make(Call::delete(target)).await?.success() {
            Ok(_) => Ok(true),
            Err(KubeError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the user as which the apiserver authenticates these credentials; needs no rights.
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
