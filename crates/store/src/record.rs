//! What the store gives and takes: one record per object. How they lie in tables is nobody else's business.

mod archive;
mod credential;
mod history;
mod inventory;
mod operation;
mod replica;
mod workload;

pub use {
    archive::{ArchiveRecord, ArchivedRange},
    credential::{AuthorityRecord, ServiceAccountRecord, SigningKeyRecord, TokenRecord},
    history::{ActorToken, AuditRecord, EventRecord, IdempotencyRecord, NewAudit, NewEvent},
    inventory::{
        AllocationRecord, ArtifactRecord, EnrollmentRecord, LeftMachine, MachineChange, NodeKeyRecord, NodeProblem,
        NodeRecord, ProjectRecord,
    },
    operation::{OperationRecord, StepRecord, TaskRecord},
    replica::{LeaseRecord, ReplicaRecord, SessionRecord},
    workload::{AccessGrantRecord, MemberRecord, SecretRecord, WorkloadRecord},
};
