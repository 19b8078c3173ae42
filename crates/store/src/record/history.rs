//! Records of history: events, audit records, and remembered answers to requests with an idempotency key.

use gpuaas_model::{
    ActorType, AuditAction, AuditResult, CorrelationId, EventKind, Name, OwnActor, Principal, ProjectId, Role,
    ServiceAccountId, StreamName, Timestamp, TokenId, WorkloadId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event to be appended.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// The stream to append it to.
    pub stream: StreamName,
    /// The kind of event.
    pub kind: EventKind,
    /// The kind of object: `workload`, `node`, `operation`, …
    pub subject_kind: &'static str,
    /// The id of the object.
    pub subject_id: String,
    /// The correlation id of the request that caused the event.
    pub correlation: Option<CorrelationId>,
    /// Details for clients.
    pub data: Value,
}

/// An appended event.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRecord {
    /// The stream of the event.
    pub stream: StreamName,
    /// The number of the event within its stream: from 1, without gaps.
    pub sequence: u64,
    /// When the event was appended.
    pub at: Timestamp,
    /// The kind of event.
    pub kind: EventKind,
    /// The kind of object: `workload`, `node`, `operation`, …
    pub subject_kind: String,
    /// The id of the object.
    pub subject_id: String,
    /// The correlation id of the request that caused the event.
    pub correlation: Option<CorrelationId>,
    /// Details for clients.
    pub data: Value,
}

/// The token that acted. Unlike the name of its holder, which its creator chose, the id is assigned by the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorToken {
    /// The id of the token.
    pub token: TokenId,
    /// The service account that holds the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountId>,
    /// The role of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

impl From<&Principal> for ActorToken {
    fn from(principal: &Principal) -> Self {
        Self { token: principal.token, service_account: principal.service_account, role: Some(principal.role) }
    }
}

/// An audit record to be appended.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAudit {
    /// The name of the actor.
    pub actor: String,
    /// The kind of actor.
    pub actor_type: ActorType,
    /// The token that acted; absent for nodes and the control plane itself.
    pub by: Option<ActorToken>,
    /// The action that the actor performed.
    pub action: AuditAction,
    /// The object of the action, for example `workload/train` or `node/gpu-07`.
    pub target: String,
    /// The project that the object belongs to.
    pub project: Option<ProjectId>,
    /// The workload that the action serves, also if its object is another, for example a node.
    pub workload: Option<WorkloadId>,
    /// The result of the action.
    pub result: AuditResult,
    /// The correlation id of the request.
    pub correlation: Option<CorrelationId>,
    /// Allowlisted metadata; never a secret.
    pub metadata: Value,
}

impl NewAudit {
    /// An accepted action of the control plane, or of a person on its machine.
    pub fn of_own(actor: OwnActor, action: AuditAction, target: String, metadata: Value) -> Self {
        Self {
            actor: actor.to_string(),
            actor_type: ActorType::ControlPlane,
            by: None,
            action,
            target,
            project: None,
            workload: None,
            result: AuditResult::Accepted,
            correlation: None,
            metadata,
        }
    }

    /// An accepted action of a node's agent.
    pub fn of_node(node: &Name, action: AuditAction, target: String, metadata: Value) -> Self {
        let actor = OwnActor::of_node(node);
        Self { actor, actor_type: ActorType::Node, ..Self::of_own(OwnActor::ControlPlane, action, target, metadata) }
    }
}

/// An appended audit record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// The number of the record, without gaps.
    pub sequence: u64,
    /// When the record was appended.
    pub at: Timestamp,
    /// The name of the actor.
    pub actor: String,
    /// The kind of actor.
    pub actor_type: ActorType,
    /// The token that acted; absent for nodes, the control plane itself, and records of versions that did not store it.
    pub by: Option<ActorToken>,
    /// The action that the actor performed.
    pub action: AuditAction,
    /// The object of the action, for example `workload/train` or `node/gpu-07`.
    pub target: String,
    /// The project that the object belongs to.
    pub project: Option<ProjectId>,
    /// The workload that the action serves, also if its object is another, for example a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadId>,
    /// The result of the action.
    pub result: AuditResult,
    /// The correlation id of the request.
    pub correlation: Option<CorrelationId>,
    /// Allowlisted metadata; never a secret.
    pub metadata: Value,
}

/// A seal of the audit: a signed digest of consecutive audit records and of the seal before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSealRecord {
    /// The number of the seal: from 1, without gaps.
    pub number: u64,
    /// The number of the first audit record that the seal covers: that after the last one of the seal before it.
    pub first: u64,
    /// The number of the last audit record that the seal covers.
    pub last: u64,
    /// How many audit records the seal covers; fewer than the numbers from `first` to `last` if records were missing.
    pub records: u64,
    /// When the seal was made, by the database's clock.
    pub at: Timestamp,
    /// The digest of the seal before it; 64 zeros for the first.
    pub previous: String,
    /// SHA-256 over `previous` and the records, 64 hex digits.
    pub digest: String,
    /// The id of the key that signed the seal.
    pub key_id: String,
    /// Signature over the other fields, base64.
    pub signature: String,
}

/// The remembered answer to a request with an idempotency key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdempotencyRecord {
    /// The token that made the request.
    pub token: TokenId,
    /// The client's idempotency key.
    pub key: String,
    /// SHA-256 of method, path and body, 64 hex digits.
    pub request_sha256: String,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The sealed body of the answer, in hex.
    pub body: String,
    /// When the answer was stored.
    pub created_at: Timestamp,
}

impl IdempotencyRecord {
    /// Returns the owner that the body is sealed for. The body does not open for another key, request or status.
    pub fn seal_owner(&self) -> Vec<u8> {
        let Self { token, key, request_sha256, status, .. } = self;
        format!("idempotency {token} {key} {request_sha256} {status}").into_bytes()
    }
}
