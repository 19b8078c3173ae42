//! Executes operations: plans from rows, starts idempotent steps, records their results, and wakes on pushed changes.
//!
//! Guarantees: a row records each step before the step acts; after a restart in any step the operation continues; a completed effect is
//! never repeated; at most one mutating operation per workload runs at a time; no transaction is open across a node task or a network call.
//!
//! Deliberately absent: SQL (`store`), connections (`channel`), Kubernetes (an app's effects), HTTP (`api`).

mod access_registry;
mod audit_chain;
mod audit_sealer;
mod authorities;
mod authority_rotation;
mod begin;
mod call_context;
mod caller;
mod catalog;
mod cluster_watch;
pub mod commands;
mod dispatch;
mod drift;
mod drift_followers;
mod driver;
pub mod effects;
mod engine;
mod error;
mod fair_queue;
mod findings;
mod forged_rows;
mod former_status;
mod key_delivery;
mod key_rotation;
mod key_rotation_state;
mod keys;
mod members;
mod observe;
mod open_access;
mod operation_end;
mod outputs;
pub mod ownership;
pub mod port;
mod precondition;
mod record;
mod replicas;
mod restored;
mod retention;
mod retention_times;
mod rows;
mod run;
mod sealing_rotation;
mod sealing_rotation_state;
mod secrets;
mod settle;
mod shown_plans;
mod step;
pub mod waiting;
mod workload_status;

pub use access_registry::AccessGuard;
pub use audit_chain::{ChainDefect, ChainError, ChainHead, Verification, unsealed_audit_since};
pub use audit_sealer::Sealing;
pub use authorities::{Authorities, open_authority, stored_authority};
pub use caller::Caller;
pub use catalog::{AppEntry, Catalog};
pub use engine::{Endpoints, Engine, EngineParts};
pub use error::{CommandError, EngineError, check_line};
pub use fair_queue::{CallPermit, FairQueue, QueueFull, QueueLimits};
pub use keys::{KeyRing, Keys, KeysError, SignedSet, SignedTask, record_proof};
pub use precondition::{Precondition, Revision};
pub use restored::{RevokedCredentials, RevokedNode, revoke_restored_credentials};
pub use retention::RetentionError;
pub use retention_times::{KeepFor, Retention};
pub use sealing_rotation::SealingState;
