//! Records with default values; each test changes the fields that it is about.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use gpuaas_model::*;
use gpuaas_store::*;
use serde_json::json;

use super::database::NOW;

mod work;

pub(crate) use work::{operation, step, task};

/// A UUID that sorts after all earlier ones.
pub(crate) fn uuid() -> uuid::Uuid {
    static MADE: AtomicU64 = AtomicU64::new(1);
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    uuid::Builder::from_unix_timestamp_millis(1_790_000_000_000 + made, &[7; 10]).into_uuid()
}

/// A unique digest.
pub(crate) fn digest() -> String {
    format!("{}{}", uuid().simple(), uuid().simple())
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("the name is valid")
}

pub(crate) fn project(called: &str) -> ProjectRecord {
    ProjectRecord { id: ProjectId::from_uuid(uuid()), name: name(called), created_at: NOW, deleted_at: None }
}

pub(crate) fn node(called: &str) -> NodeRecord {
    NodeRecord {
        id: NodeId::from_uuid(uuid()),
        name: name(called),
        region: None,
        labels: Default::default(),
        state: NodeState::Active,
        epoch: 1,
        connectivity: Connectivity::Connected,
        connectivity_since: NOW,
        clock_skew_seconds: None,
        agent_version: None,
        agent_problem: None,
        ledger: None,
        machine_id: None,
        support: Vec::new(),
        left_by_tenant: None,
        machine_changed: None,
        facts: None,
        machine: None,
        inspected_at: None,
        preflight: None,
        certified_by: None,
        created_at: NOW,
        deleted_at: None,
        generation: 1,
    }
}

pub(crate) fn enrollment(node: &NodeRecord) -> EnrollmentRecord {
    EnrollmentRecord {
        id: EnrollmentId::from_uuid(uuid()),
        node: node.id,
        sha256: digest(),
        created_at: NOW,
        expires_at: NOW.plus(std::time::Duration::from_secs(900)),
        is_forced: false,
        reimage_sha256: None,
        used_at: None,
        pinned: None,
    }
}

/// A token that does not expire.
pub(crate) fn token(role: Role) -> TokenRecord {
    TokenRecord {
        id: TokenId::from_uuid(uuid()),
        name: "ada".into(),
        sha256: digest(),
        role,
        project: None,
        service_account: None,
        workload: None,
        created_at: NOW,
        expires_at: None,
        revoked_at: None,
        is_bootstrap: false,
    }
}

/// A session of a browser, which ends half an hour after [`NOW`] without use.
pub(crate) fn browser_session(token: TokenId) -> BrowserSessionRecord {
    BrowserSessionRecord {
        id: BrowserSessionId::from_uuid(uuid()),
        sha256: digest(),
        token,
        proof: SessionProof::SignInLink,
        user_agent: Some("Mozilla/5.0".into()),
        created_at: NOW,
        last_used_at: NOW,
        idle_expires_at: NOW.plus(Duration::from_secs(1_800)),
        expires_at: NOW.plus(Duration::from_secs(43_200)),
    }
}

/// A sign-in link that is void ten minutes after [`NOW`].
pub(crate) fn sign_in_link(token: TokenId) -> SignInLinkRecord {
    SignInLinkRecord {
        id: SignInLinkId::from_uuid(uuid()),
        sha256: digest(),
        token,
        created_at: NOW,
        expires_at: NOW.plus(Duration::from_secs(600)),
        used_at: None,
    }
}

/// A service account with the role viewer.
pub(crate) fn service_account(project: ProjectId, called: &str) -> ServiceAccountRecord {
    ServiceAccountRecord {
        id: ServiceAccountId::from_uuid(uuid()),
        project,
        name: name(called),
        role: Role::Viewer,
        workload: None,
        created_at: NOW,
        deleted_at: None,
    }
}

pub(crate) fn allocation(project: &ProjectRecord, node: &NodeRecord) -> AllocationRecord {
    AllocationRecord {
        id: AllocationId::from_uuid(uuid()),
        project: project.id,
        node: node.id,
        state: AllocationState::Active,
        detail: None,
        created_at: NOW,
        generation: 1,
    }
}

pub(crate) fn workload(project: &ProjectRecord, called: &str) -> WorkloadRecord {
    let (id, release) = (WorkloadId::from_uuid(uuid()), ("rke2".into(), "1".into()));
    let requested = WorkloadRecord::requested(id, project.id, name(called), release, "accepted".into(), NOW);
    WorkloadRecord { revision: 1, ..requested }
}

pub(crate) fn member(workload: &WorkloadRecord, allocation: &AllocationRecord) -> MemberRecord {
    let place = MemberPlace::Allocation { allocation: allocation.id, node: allocation.node };
    MemberRecord::pending(MemberId::from_uuid(uuid()), workload.id, ("server".into(), 1), place, NOW)
}

pub(crate) fn event(stream: StreamName) -> NewEvent {
    NewEvent {
        stream,
        kind: EventKind::NodeRegistered,
        subject_kind: "node",
        subject_id: uuid().to_string(),
        correlation: None,
        data: json!({ "name": "gpu-1" }),
    }
}

pub(crate) fn audit(target: &str) -> NewAudit {
    NewAudit {
        actor: "token/ada".into(),
        actor_type: ActorType::Principal,
        by: None,
        action: AuditAction::NodeRegister,
        target: target.into(),
        project: None,
        workload: None,
        result: AuditResult::Accepted,
        correlation: Some(CorrelationId::from_uuid(uuid())),
        metadata: json!({ "note": "it's fine" }),
    }
}

/// Commits a project and a node of that name, and the project's allocation of the node.
pub(crate) async fn allocated_node(store: &Store, called: &str) -> (ProjectRecord, NodeRecord, AllocationRecord) {
    let (project, node) = (project(called), node(called));
    let allocation = allocation(&project, &node);
    let mut tx = store.begin().await.unwrap();
    tx.insert_project(&project).await.unwrap();
    tx.insert_node(&node).await.unwrap();
    tx.insert_allocation(&allocation).await.unwrap();
    tx.commit().await.unwrap();
    (project, node, allocation)
}

/// Commits a workload in a project of the same name.
pub(crate) async fn workload_in_project(store: &Store, called: &str) -> (ProjectRecord, WorkloadRecord) {
    let project = project(called);
    let workload = workload(&project, called);
    let mut tx = store.begin().await.unwrap();
    tx.insert_project(&project).await.unwrap();
    tx.insert_workload(&workload).await.unwrap();
    tx.commit().await.unwrap();
    (project, workload)
}

pub(crate) fn grant(workload: &WorkloadRecord) -> AccessGrantRecord {
    AccessGrantRecord {
        id: AccessGrantId::from_uuid(uuid()),
        workload: workload.id,
        kind: "direct".into(),
        role: "admin".into(),
        requested_by: "token/ada".into(),
        reason: None,
        service_account: "gpuaas-1".into(),
        created_at: NOW,
        expires_at: NOW,
        revoked_at: None,
    }
}

/// An unverified file of the app `rke2`.
pub(crate) fn artifact(version: &str) -> ArtifactRecord {
    ArtifactRecord {
        id: ArtifactId::from_uuid(uuid()),
        app: "rke2".into(),
        version: version.into(),
        name: "rke2.tar.zst".into(),
        sha256: digest(),
        size_bytes: 7,
        source: "mirror".into(),
        stand_in: false,
        verified_by: None,
        imported_at: NOW,
    }
}

pub(crate) fn signing_key(key_id: &str, state: KeyState, version: u64) -> StoredSigningKey {
    let key = SigningKeyRecord {
        key_id: key_id.into(),
        public: "public".into(),
        state,
        version,
        created_at: NOW,
        changed_at: NOW,
        correlation: None,
    };
    StoredSigningKey { key, seed: vec![0, 255, 7] }
}

pub(crate) fn authority(id: &str, state: KeyState, version: u64) -> StoredAuthority {
    let authority = AuthorityRecord {
        id: id.to_owned(),
        certificate: "certificate".to_owned(),
        by_predecessor: String::new(),
        state,
        version,
        created_at: NOW,
        changed_at: NOW,
        correlation: None,
    };
    StoredAuthority { authority, key: vec![0, 255, 7] }
}
