//! What happened: events for those who watch, audit for those who ask later, answers for those who ask again.

use gpuaas_model::{
    ActorType, AuditAction, AuditResult, CorrelationId, EventKind, Principal, ProjectId, ServiceAccountId, StreamName,
    Timestamp, TokenId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// Its stream.
    pub stream: StreamName,
    /// Of what kind.
    pub kind: EventKind,
    /// `workload`, `node`, `operation`, …
    pub subject_kind: &'static str,
    /// The id of what it is about.
    pub subject_id: String,
    /// The correlation id of the request behind it.
    pub correlation: Option<CorrelationId>,
    /// What happened, for clients.
    pub data: Value,
}

/// A written event.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRecord {
    /// Its stream.
    pub stream: StreamName,
    /// Without gaps within its stream, from 1.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// Of what kind.
    pub kind: EventKind,
    /// What it is about.
    pub subject_kind: String,
    /// The id of what it is about.
    pub subject_id: String,
    /// The correlation id of the request behind it.
    pub correlation: Option<CorrelationId>,
    /// What happened, for clients.
    pub data: Value,
}

/// The token that acted. Its holder's name is what its maker chose; its id nobody chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorToken {
    /// Its id.
    pub token: TokenId,
    /// The service account that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountId>,
}

impl From<&Principal> for ActorToken {
    fn from(principal: &Principal) -> Self {
        Self { token: principal.token, service_account: principal.service_account }
    }
}

/// An audit record to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAudit {
    /// Who acted.
    pub actor: String,
    /// What kind of actor.
    pub actor_type: ActorType,
    /// Which token acted; absent for nodes and the control plane itself.
    pub by: Option<ActorToken>,
    /// What was done.
    pub action: AuditAction,
    /// `workload/train`, `node/gpu-07`.
    pub target: String,
    /// Whose.
    pub project: Option<ProjectId>,
    /// How it ended.
    pub result: AuditResult,
    /// The correlation id of the request behind it.
    pub correlation: Option<CorrelationId>,
    /// Allowlisted metadata; never a secret.
    pub metadata: Value,
}

/// A written audit record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Grows without gaps.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// Who acted.
    pub actor: String,
    /// What kind of actor.
    pub actor_type: ActorType,
    /// Which token acted; absent for nodes, the control plane itself, and in records of versions that did not keep it.
    pub by: Option<ActorToken>,
    /// What was done.
    pub action: AuditAction,
    /// To what.
    pub target: String,
    /// Whose.
    pub project: Option<ProjectId>,
    /// How it ended.
    pub result: AuditResult,
    /// The correlation id of the request behind it.
    pub correlation: Option<CorrelationId>,
    /// Allowlisted metadata; never a secret.
    pub metadata: Value,
}

/// The remembered answer to a request with an idempotency key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdempotencyRecord {
    /// The token that asked.
    pub token: TokenId,
    /// The client's key.
    pub key: String,
    /// SHA-256 over method, path and body, 64 hex digits.
    pub request_sha256: String,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The body of the answer, sealed, in hex.
    pub body: String,
    /// When it was made.
    pub created_at: Timestamp,
}

impl IdempotencyRecord {
    /// What the body is sealed for: it does not open under another key, for another request, or with another status.
    pub fn sealed_for(&self) -> Vec<u8> {
        let Self { token, key, request_sha256, status, .. } = self;
        format!("idempotency {token} {key} {request_sha256} {status}").into_bytes()
    }
}
