//! RKE2's failures by name: which lines of a journal show them, who can cure them, and how.
//!
//! [`FAULTS`] is read from top to bottom; the first row that the journal shows decides. Symptoms match anywhere in a line and at any level,
//! because several decisive lines have `level=info`. Lines that healthy starts contain, too, count only once the deadline has passed or
//! they have lasted ([`Proof`]).
//!
//! Deliberately absent: which operation cures a fault in which steps (`plan`), and the health of whole workloads (`planner`).

mod diagnose;
mod journal;
mod remedy;
mod row;
mod table;

pub(crate) use diagnose::{diagnose_call, diagnose_start};
pub(crate) use journal::{exceptions, give_up_on};
pub use remedy::{Remedy, Subject};
pub use row::{Counts, FaultRow, LogSpan, Proof};
pub(crate) use table::{CLUSTER_UNREACHABLE, KUBE_NODE_MISSING, KUBE_NODE_NOT_READY, PREFLIGHT, RESIDUE, SERVICE_DOWN};
pub use table::{FAULTS, OTHER_FAULTS};
