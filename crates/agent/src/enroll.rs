//! Redeems the enrollment string: creates a key, proves its possession, and receives an identity. Only what the string pins is trusted.

use std::sync::Arc;

use bytes::Bytes;
use camino::Utf8Path;
use gpuaas_host::Host;
use gpuaas_model::Code;
use gpuaas_trust::{
    EnrollmentString, NodeKey, SecretText, certificate_pem, certificates_of_pem, pinned_client_config, sha256_hex,
};
use gpuaas_wire::session::{BODY_BYTES_MAX, EnrollRequest, EnrollResponse, ReimageEvidence};
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::Full;

use crate::{
    clock::{NodeTime, now},
    error::AgentError,
    http_client::{connect, request_once},
    ledger::{ExpectedLedger, Ledger},
    options::Options,
    state::{self, Identity, State},
    version,
};

/// Longest enrollment string that is read, in bytes.
const STRING_BYTES_MAX: u64 = 16 * 1_024;
const ENROLL_PATH: &str = "/api/v1/enroll";
/// Port of a URL that names none.
const HTTPS_PORT: u16 = 443;

/// An identity, and whether it was just created.
pub(crate) struct Enrollment {
    pub(crate) state: State,
    pub(crate) is_new: bool,
}

/// Returns the stored identity, or redeems the enrollment string if one is available. A string that was redeemed here is not redeemed
/// again.
pub(crate) async fn load_or_enroll(host: &Arc<dyn Host>, options: &Options) -> Result<Enrollment, AgentError> {
    let text = match std::env::var("GPUAAS_ENROLL") {
        Ok(text) => Some(text),
        Err(_) => from_file(host, &options.enroll_file).await?,
    };
    let loaded = state::load(host).await;
    let Some(text) = text else {
        let state = loaded?.ok_or_else(|| AgentError::NotEnrolled(options.enroll_file.to_string()))?;
        return Ok(Enrollment { state, is_new: false });
    };
    let kept = match loaded {
        Err(error @ AgentError::Identity { .. }) => {
            // The previous identity of this machine cannot be determined: the control plane decides whether the string is valid for it.
            tracing::warn!(%error, "the stored identity is unusable; trying the enrollment string");
            None
        }
        loaded => loaded?,
    };
    let (string, sha256) = (EnrollmentString::decode(&text)?, sha256_hex(text.trim().as_bytes()));
    let enrollment = match kept {
        Some(state) if state.identity.enrolled_by.as_deref() == Some(&sha256) => Enrollment { state, is_new: false },
        Some(state) if !is_same_node(&string, &state.identity) => {
            return Err(AgentError::AlreadyEnrolled(state.identity.description()));
        }
        kept => {
            let expected = kept.map(|state| state.identity.expected_ledger());
            Enrollment { state: enroll(host, &string, sha256, (options, expected)).await?, is_new: true }
        }
    };
    host.files().remove(&options.enroll_file).await?;
    Ok(enrollment)
}

/// Returns the identity to serve with. An enrollment string that cannot be used ends an agent without an identity; an enrolled agent
/// ignores it.
pub(crate) async fn load_enroll_or_keep(host: &Arc<dyn Host>, options: &Options) -> Result<State, AgentError> {
    let refused = match load_or_enroll(host, options).await {
        Ok(enrollment) => return Ok(enrollment.state),
        Err(error) if error.makes_string_unusable() => error,
        Err(error) => return Err(error),
    };
    let Some(kept) = state::load(host).await? else { return Err(refused) };
    tracing::warn!(error = %refused, node = %kept.identity.node, "the enrollment string is not usable; keeping the stored identity");
    Ok(kept)
}

/// Returns true if the string is for the node as which this machine is already enrolled.
fn is_same_node(string: &EnrollmentString, identity: &Identity) -> bool {
    string.node == identity.node && string.control_plane == identity.control_plane
}

async fn from_file(host: &Arc<dyn Host>, path: &Utf8Path) -> Result<Option<String>, AgentError> {
    let bytes = host.files().read(path, STRING_BYTES_MAX).await?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

async fn enroll(
    host: &Arc<dyn Host>,
    string: &EnrollmentString,
    sha256: String,
    (options, previous): (&Options, Option<ExpectedLedger>),
) -> Result<State, AgentError> {
    // Every enrollment creates a new key: a former user with root access may know the previous one.
    let key = NodeKey::generate().map_err(|error| AgentError::State(error.to_string()))?;
    let reimage = from_file(host, &options.reimage_file).await?;
    let request = EnrollRequest {
        node: string.node,
        token: string.token.expose().to_owned(),
        csr: key.request_pem().map_err(|error| AgentError::State(error.to_string()))?,
        machine_id: host.inventory().facts().await?.machine_id,
        agent_version: version::version().to_owned(),
        clock: Some(now()),
        reimage: reimage.map(|value| ReimageEvidence::OneTimeValue { value: value.trim().to_owned() }),
    };
    let response = post(string, &request).await?;
    let kept = SecretText::new(key.to_pem().to_string());
    let identity = Identity { enrolled_by: Some(sha256), key: Some(kept), ..identity_from_response(string, response)? };
    // The ledger is written first: an identity never names a ledger that does not exist.
    let expected =
        ExpectedLedger { id: previous.as_ref().and_then(|previous| previous.id.clone()), ..identity.expected_ledger() };
    let ledger = Ledger::prepare(host, &expected, previous.is_some(), now()).await?;
    let identity = Identity { ledger: Some(ledger), ..identity };
    state::save(host, &identity).await?;
    host.files().remove(&options.reimage_file).await?;
    tracing::info!(node = %identity.node, "enrolled");
    Ok(State { identity, key })
}

async fn post(string: &EnrollmentString, request: &EnrollRequest) -> Result<EnrollResponse, AgentError> {
    let address = &address(&string.url)?;
    let mut tls =
        pinned_client_config(&string.ca_sha256).map_err(|error| AgentError::Unreachable(error.to_string()))?;
    tls.time_provider = Arc::new(NodeTime);
    let stream = connect(address, tls).await?;
    let body = serde_json::to_vec(request).map_err(|error| AgentError::State(error.to_string()))?;
    let http = Request::builder()
        .method(Method::POST)
        .uri(ENROLL_PATH)
        .header(header::HOST, address)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| AgentError::State(error.to_string()))?;
    let (status, body) = request_once(stream, http, BODY_BYTES_MAX).await?;
    if !status.is_success() {
        return Err(refusal(status, &body));
    }
    serde_json::from_slice(&body).map_err(|error| AgentError::Refused(format!("its response is invalid: {error}")))
}

/// Returns `host:port` of a URL.
fn address(url: &str) -> Result<String, AgentError> {
    let invalid = || AgentError::Unreachable(format!("{url:?} is not the URL of a control plane"));
    let uri: Uri = url.parse().map_err(|_| invalid())?;
    let host = uri.host().ok_or_else(invalid)?;
    Ok(format!("{host}:{}", uri.port_u16().unwrap_or(HTTPS_PORT)))
}

/// Converts a problem document, or the start of any other body, to an error.
fn refusal(status: StatusCode, body: &[u8]) -> AgentError {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| value.get(name).and_then(serde_json::Value::as_str);
    let code = text("code").and_then(|code| code.parse::<Code>().ok());
    match (text("detail"), code) {
        (Some(detail), Some(code)) => AgentError::EnrollmentRefused {
            code,
            detail: detail.to_owned(),
            next: text("next").unwrap_or_default().to_owned(),
        },
        _ => AgentError::Refused(format!("{status}: {}", String::from_utf8_lossy(&body[..body.len().min(200)]))),
    }
}

/// Verifies a response. It came over a pinned connection; even so, it must contain the pinned authority, and that authority must have
/// signed the keys.
fn identity_from_response(string: &EnrollmentString, response: EnrollResponse) -> Result<Identity, AgentError> {
    let wrong = |what: String| AgentError::Refused(format!("its response is invalid: {what}"));
    let offered = certificates_of_pem(&response.authority).map_err(|error| wrong(error.to_string()))?;
    let pinned = offered.into_iter().find(|authority| sha256_hex(authority) == string.ca_sha256);
    let pinned = pinned.ok_or_else(|| wrong("it does not contain the pinned authority".to_owned()))?;
    let key_set: gpuaas_trust::SignedKeySet =
        serde_json::from_value(response.key_set).map_err(|error| wrong(error.to_string()))?;
    let set = key_set.verify(std::slice::from_ref(&pinned), None, now()).map_err(|error| wrong(error.to_string()))?;
    let identity = Identity {
        node: string.node,
        control_plane: response.control_plane,
        epoch: response.epoch,
        channels: response.channels,
        // Any other authority in the response counts only if the signed key set names it.
        authority: certificate_pem(&pinned),
        certificate: response.certificate,
        key_set: key_set.clone(),
        name: Some(string.name.clone()),
        url: Some(string.url.clone()),
        enrolled_by: None,
        key: None,
        ledger: None,
    };
    Ok(identity.with_key_set(&key_set, &set))
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn url_without_a_port_uses_443() {
        for (url, expected) in [
            ("https://cp.example:7443", "cp.example:7443"),
            ("https://cp.example/", "cp.example:443"),
            ("https://[::1]:7443", "[::1]:7443"),
            ("https://[::1]", "[::1]:443"),
        ] {
            assert_eq!(address(url).unwrap(), expected);
        }
    }
}
