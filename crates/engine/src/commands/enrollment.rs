//! Issues enrollment strings.

use std::time::Duration;

use gpuaas_model::{AuditAction, EnrollmentId, EventKind};
use gpuaas_store::{EnrollmentRecord, NodeRecord, Tx};
use gpuaas_trust::{EnrollmentString, SecretText};
use serde_json::json;

use super::audit;
use crate::{caller::Caller, engine::Engine, error::CommandError, record::platform_event, waiting};

/// How long an enrollment string is valid: 15 minutes.
const ENROLLMENT_TTL: Duration = Duration::from_secs(15 * 60);
/// Prefix of every enrollment token.
pub(super) const TOKEN_PREFIX: &str = "gpuaas-enroll";

/// Accepts a machine as it is, including anything that a tenant may have left on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forced {
    /// The reason, in one line; kept in the audit log.
    pub reason: String,
}

/// Issues an enrollment string. `forced` accepts the machine as it is; `reimage_sha256` is the digest of the value that a reimaged machine
/// must present.
pub(super) async fn issue(
    engine: &Engine,
    caller: &Caller,
    tx: &mut Tx,
    node: &NodeRecord,
    (forced, reimage_sha256): (Option<&Forced>, Option<String>),
) -> Result<SecretText, CommandError> {
    let ports = engine.ports();
    let token = engine.keys().tokens().generate(TOKEN_PREFIX, &*ports.entropy);
    let now = ports.clock.now();
    let authority = engine.keys().ring(tx).await?.authorities().active().digest();
    let enrollment = EnrollmentRecord {
        id: EnrollmentId::generate(&*ports.clock, &*ports.entropy),
        node: node.id,
        sha256: token.sha256,
        created_at: now,
        expires_at: now.plus(ENROLLMENT_TTL),
        used_at: None,
        is_forced: forced.is_some(),
        reimage_sha256,
        pinned: Some(authority.clone()),
    };
    tx.insert_enrollment(&enrollment).await?;
    let mut data = json!({ "node": node.name, "expires_at": enrollment.expires_at.to_string() });
    let correlation = Some(caller.correlation);
    let event = waiting::with(data.clone(), waiting::of_node(node, Some(&enrollment)));
    platform_event(tx, EventKind::NodeEnrollmentIssued, "node", node.id.to_string(), correlation, event).await?;
    data["forced"] = json!(forced.map(|forced| &forced.reason));
    audit(tx, caller, AuditAction::NodeEnrollmentCreate, format!("node/{}", node.name), None, data).await?;
    let string = EnrollmentString {
        url: engine.endpoints().api_url.clone(),
        control_plane: engine.keys().control_plane().to_owned(),
        node: node.id,
        name: node.name.clone(),
        token: token.text,
        ca_sha256: authority,
        expires_at: enrollment.expires_at,
    };
    Ok(string.encode())
}
