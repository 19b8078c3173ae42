//! Explains what has not settled: what is awaited, from whom, since when, what was last seen, and what to do.
//!
//! Pure, from rows. Every function matches the states without a wildcard, so that a new state does not compile without its explanation. It
//! returns `None` only for what has ended or settled; [`unexplained()`] finds what breaks this rule.
//!
//! Deliberately absent: which fault explains a workload (`status`), the words of one app (`apps/`), and times relative to now: an
//! explanation stays the same until the rows change.

mod decision;
mod inventory;
mod member;
mod operation;
mod step;
mod unexplained;
mod workload;

pub use inventory::{
    AgentProblem, AllocationRow, IssuedEnrollment, NodeLink, NodeRow, TaskRow, allocation, node, task,
};
pub use member::{MemberRow, member};
pub use operation::{OperationRow, operation};
pub use step::{Awaited, StepRow, awaited, current_step, steps};
pub use unexplained::{Rows, unexplained};
pub use workload::{ControllerRow, Open, WorkloadRow, controller, is_settled, workload};

#[cfg(test)]
mod tests;
