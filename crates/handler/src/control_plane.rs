//! A handler's requests to the control plane.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use gpuaas_model::SecretId;
use gpuaas_wire::task::SecretRef;
use zeroize::Zeroizing;

/// The bytes of an artifact.
pub type ByteStream = BoxStream<'static, Result<Bytes, RequestError>>;

/// What a handler may request. The control plane grants only what the node's open tasks name.
#[async_trait]
pub trait ControlPlane: Send + Sync {
    /// Requests an artifact from byte `offset` on. The caller checks the digest.
    async fn artifact(&self, sha256: &str, offset: u64) -> Result<ByteStream, RequestError>;

    /// Fetches a secret and checks it against the digest that the task names.
    async fn secret(&self, secret: &SecretRef) -> Result<Zeroizing<Vec<u8>>, RequestError>;

    /// Stores a secret at the control plane under the id that a task named.
    async fn deposit(&self, secret: SecretId, bytes: &[u8]) -> Result<(), RequestError>;
}

/// The control plane cannot be reached, or refused the request.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RequestError(pub String);
