//! Carries operations out: plans from rows, starts idempotent steps, records what came of them, and is woken by pushes.
//!
//! Guarantees: what a step is about to do is in a row before it is done; a restart in any step continues it; a completed effect is
//! never repeated; one mutating operation per workload at a time; no transaction is open across a node task or a network call.
//!
//! Deliberately absent: SQL (`store`), connections (`channel`), Kubernetes (an app's effects), HTTP (`api`).

mod authorities;
mod authority_rotation;
mod begin;
mod caller;
mod catalog;
pub mod commands;
mod dispatch;
mod driver;
pub mod effects;
mod engine;
mod error;
mod fair_queue;
mod forged_rows;
mod held;
mod key_giving;
mod key_rotation;
mod keys;
mod observe;
pub mod ownership;
pub mod port;
mod record;
mod replicas;
mod restored;
mod retention;
mod rows;
mod sealing_rotation;
mod secrets;
mod seen;
mod settle;
mod step;

pub use authorities::{Authorities, open_authority, stored_authority};
pub use caller::Caller;
pub use catalog::{AppEntry, Catalog};
pub use engine::{Endpoints, Engine, EngineParts};
pub use error::{CommandError, check_line};
pub use fair_queue::{CallPermit, FairQueue, QueueFull, QueueLimits};
pub use held::WhileHeld;
pub use keys::{KeyRing, Keys, KeysError, SignedSet, SignedTask, record_proof};
pub use restored::{Ended, EndedNode, end_what_came_back};
pub use retention::{KeepFor, Retention, RetentionError};
pub use sealing_rotation::SealingState;
pub use seen::{Revision, Seen};
