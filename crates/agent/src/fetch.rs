//! The agent's requests to the control plane: artifacts, secrets, renewal. Each uses its own connection: requests are few, and a long
//! download must not delay a secret.

use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use gpuaas_handler::{ByteStream, ControlPlane, RequestError};
use gpuaas_model::SecretId;
use gpuaas_trust::{ALPN_FETCH, node_client_config, sha256_hex};
use gpuaas_wire::session::{BODY_BYTES_MAX, Refusal, RenewRequest, RenewResponse, SECRET_BYTES_MAX, path};
use gpuaas_wire::task::SecretRef;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::ClientConfig;
use zeroize::Zeroizing;

use crate::{
    clock::{NodeTime, now},
    endpoints::Endpoints,
    error::AgentError,
    http_client::{next_chunk, read_body, request_streamed},
    state::{Identity, State},
};

/// Sends requests to the control plane.
pub(crate) struct Fetch {
    endpoints: Arc<Endpoints>,
    tls: RwLock<ClientConfig>,
}

impl Fetch {
    pub(crate) fn new(state: &State, endpoints: Arc<Endpoints>) -> Result<Self, AgentError> {
        Ok(Self { endpoints, tls: RwLock::new(tls(&state.identity, state)?) })
    }

    /// Uses the renewed certificate, and the authorities that are now trusted, for later requests.
    pub(crate) fn update_tls(&self, state: &State) -> Result<(), AgentError> {
        *self.tls.write().unwrap_or_else(std::sync::PoisonError::into_inner) = tls(&state.identity, state)?;
        Ok(())
    }

    /// Requests a new certificate for the key of `csr`.
    pub(crate) async fn renew(&self, csr: String) -> Result<String, AgentError> {
        let request = serde_json::to_vec(&RenewRequest { csr, clock: Some(now()) })
            .map_err(|error| AgentError::State(error.to_string()))?;
        let response = self.request(Method::POST, path::RENEW.to_owned(), Bytes::from(request), None).await?;
        let bytes = body(response, BODY_BYTES_MAX).await?;
        let renewed: RenewResponse =
            serde_json::from_slice(&bytes).map_err(|error| AgentError::Refused(error.to_string()))?;
        Ok(renewed.certificate)
    }

    /// Shows the control plane that the agent stored the renewed certificate. Until then the previous one stays current, because the
    /// response with the renewed one may have been lost.
    pub(crate) async fn confirm_renewal(&self) -> Result<(), AgentError> {
        let response = self.request(Method::POST, path::CONFIRM_RENEWAL.to_owned(), Bytes::new(), None).await?;
        body(response, BODY_BYTES_MAX).await.map(|_| ())
    }

    async fn request(
        &self,
        method: Method,
        target: String,
        content: Bytes,
        range: Option<String>,
    ) -> Result<Response<Incoming>, AgentError> {
        let tls = self.tls.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let (_, stream) = self.endpoints.connect(&tls).await?;
        let mut request = Request::builder().method(method).uri(format!("https://control-plane{target}"));
        if let Some(range) = range {
            request = request.header(header::RANGE, range);
        }
        let request = request.body(Full::new(content)).map_err(|error| AgentError::State(error.to_string()))?;
        request_streamed(stream, request).await
    }
}

#[async_trait]
impl ControlPlane for Fetch {
    async fn artifact(&self, sha256: &str, offset: u64) -> Result<ByteStream, RequestError> {
        let range = (offset > 0).then(|| format!("bytes={offset}-"));
        let response = self.request(Method::GET, format!("{}{sha256}", path::ARTIFACTS), Bytes::new(), range).await?;
        match response.status() {
            StatusCode::OK if offset == 0 => {}
            StatusCode::PARTIAL_CONTENT if offset > 0 => {}
            status => return Err(AgentError::Refused(format!("artifact {sha256}: {status}")).into()),
        }
        let chunks = stream::try_unfold(response.into_body(), |mut body| async move {
            Ok(next_chunk(&mut body).await?.map(|chunk| (chunk, body)))
        });
        Ok(chunks.boxed())
    }

    async fn secret(&self, secret: &SecretRef) -> Result<Zeroizing<Vec<u8>>, RequestError> {
        let response =
            self.request(Method::GET, format!("{}{}", path::SECRETS, secret.secret_id), Bytes::new(), None).await?;
        let bytes = Zeroizing::new(body(response, SECRET_BYTES_MAX).await?.to_vec());
        if sha256_hex(&bytes) != secret.sha256 {
            return Err(AgentError::Refused("the secret does not match the digest in the task".to_owned()).into());
        }
        Ok(bytes)
    }

    async fn deposit(&self, secret: SecretId, bytes: &[u8]) -> Result<(), RequestError> {
        let target = format!("{}{secret}", path::SECRETS);
        let response = self.request(Method::PUT, target, Bytes::copy_from_slice(bytes), None).await?;
        body(response, BODY_BYTES_MAX).await?;
        Ok(())
    }
}

impl From<AgentError> for RequestError {
    fn from(error: AgentError) -> Self {
        Self(error.to_string())
    }
}

async fn body(response: Response<Incoming>, bytes_max: usize) -> Result<Bytes, AgentError> {
    let status = response.status();
    let bytes = read_body(response.into_body(), bytes_max).await?;
    if status.is_success() {
        return Ok(bytes);
    }
    let why = match serde_json::from_slice::<Refusal>(&bytes) {
        Ok(Refusal { code, message }) => format!("{message} ({code})"),
        Err(_) => status.to_string(),
    };
    Err(AgentError::Refused(why))
}

fn tls(identity: &Identity, state: &State) -> Result<ClientConfig, AgentError> {
    let chain = vec![identity.certificate()?];
    let mut config = node_client_config(&identity.authorities()?, chain, state.key.to_der(), ALPN_FETCH)
        .map_err(|error| AgentError::State(error.to_string()))?;
    config.time_provider = Arc::new(NodeTime);
    Ok(config)
}
