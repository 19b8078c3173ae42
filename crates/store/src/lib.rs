//! Persistence: the only crate with SQL, and the only source of truth. The same code and statements run on SQLite (the
//! embedded default) and on PostgreSQL 14 or newer, where several replicas share one store. The tests in
//! `crates/store-contract` specify the behaviour of both.
//!
//! Guarantees:
//! - Rules across rows (an allocation used once, one mutation per workload, single-use tokens) are unique indexes or
//!   conditional updates, and their violations are typed errors.
//! - An event's number has no gaps within its stream, because its counter is raised in the same transaction.
//! - Events and audit records are append-only; one is deleted only after an archive holds it. Seals of the audit are
//!   append-only, and each continues the newest one.
//! - Hints are sent after a commit and never without one.
//! - A store that lost a change which this process acknowledged accepts no further change from it.
//!
//! Deliberately absent: the meaning of rows (`planner`), and keys: secrets are passed in and out sealed.

mod access;
mod address;
mod allocation;
mod archive;
mod artifact;
mod audit;
mod audit_seal;
mod authority;
mod bad_row;
mod browser_session;
mod counts;
mod damage;
mod database;
mod deleted;
mod dialect;
mod disk_space;
mod dump;
mod enrollment;
mod error;
mod event;
mod expired;
mod hint;
mod history;
mod id_prefix;
mod idempotency;
mod inspect;
mod kept_mark;
mod lease;
mod left_machine;
mod mark;
mod member;
mod migrate;
mod node;
mod node_key;
mod operation;
mod options;
mod page;
mod project;
mod query;
mod readers;
mod record;
mod record_verifier;
mod replica;
mod restore_target;
mod retry;
mod sealing;
mod sealing_record;
mod secret;
mod select;
mod service_account;
mod setting;
mod sign_in_link;
mod signing_key;
mod simulation;
mod sizes;
mod step;
mod store;
mod task;
mod token;
mod verified_records;
mod verify;
mod workload;
mod workload_parts;
mod workload_report;
mod writer;

pub use allocation::{AllocationFilter, AllocationUser, NamedMember};
pub use audit::{AuditFilter, ChainedRecord};
pub use audit_seal::ChainedSeal;
pub use authority::StoredAuthority;
pub use bad_row::BadRow;
pub use counts::StoreCounts;
pub use dump::{DumpError, RESTORE_ID, RESTORED, raised_number};
pub use enrollment::EnrollmentTerms;
pub use error::{EnrollmentRefusal, StoreError};
pub use expired::Expired;
pub use hint::Change;
pub use history::{Comparison, GENERATION, HistoryPoint};
pub use id_prefix::{IdKind, IdPrefix};
pub use inspect::{Contents, PLATFORM};
pub use mark::{FoundMark, Mark, MarkFile};
pub use node::NodeFilter;
pub use operation::OperationFilter;
pub use options::StoreOptions;
pub use page::Page;
pub use record::{
    AccessGrantRecord, ActorToken, AllocationRecord, ArchiveRecord, ArchivedRange, ArtifactRecord, AuditRecord,
    AuditSealRecord, AuthorityRecord, BrowserSessionRecord, ByPlatform, EnrollmentRecord, EventRecord, Found,
    IdempotencyRecord, LeaseRecord, MachineChange, MemberRecord, NewAudit, NewEvent, NodeFinding, NodeKeyRecord,
    NodeLedger, NodePreflight, NodeProblem, NodeRecord, OperationRecord, ProjectRecord, QuietRevisions, ReplicaRecord,
    ReturnedMachine, SecretRecord, ServiceAccountRecord, SessionRecord, SignInLinkRecord, SigningKeyRecord, StepRecord,
    TaskRecord, TokenRecord, WorkloadRecord, WorkloadReportRecord,
};
pub use record_verifier::{ForgedRow, RecordProof};
pub use replica::{Eviction, ReplicaLiveness};
pub use restore_target::RestoreTarget;
pub use retry::with_retries;
pub use sealing_record::SealingRecord;
pub use signing_key::StoredSigningKey;
pub use sizes::{StoreSize, TableSize};
pub use store::{Reader, Store, Tx};
pub use task::TaskFilter;
pub use verify::{Finding, FindingKind, VerifiedRows};
pub use workload::{WorkloadCounts, WorkloadFilter};
pub use workload_parts::WorkloadParts;
#[cfg(feature = "simulation")]
pub use {simulation::CommitTiming, store::Gate};
