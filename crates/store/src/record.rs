//! The records that the store accepts and returns, one type per object. Their table layout is private to this crate.

mod archive;
mod browser;
mod credential;
mod history;
mod inventory;
mod operation;
mod replica;
mod step;
mod workload;

pub(crate) use workload::member_name;
pub use {
    archive::{ArchiveRecord, ArchivedRange},
    browser::{BrowserSessionRecord, SignInLinkRecord},
    credential::{AuthorityRecord, ServiceAccountRecord, SigningKeyRecord, TokenRecord},
    history::{ActorToken, AuditRecord, AuditSealRecord, EventRecord, IdempotencyRecord, NewAudit, NewEvent},
    inventory::{
        AllocationRecord, ArtifactRecord, EnrollmentRecord, Found, MachineChange, NodeFinding, NodeKeyRecord,
        NodeLedger, NodePreflight, NodeProblem, NodeRecord, ProjectRecord, ReturnedMachine,
    },
    operation::{ByPlatform, OperationRecord, StepRecord, TaskRecord},
    replica::{LeaseRecord, ReplicaRecord, SessionRecord},
    workload::{AccessGrantRecord, MemberRecord, QuietRevisions, SecretRecord, WorkloadRecord, WorkloadReportRecord},
};
