//! Turns the desired and the last observed state of a workload into the next steps.
//!
//! Pure: no clock but the given `now`, no I/O, no randomness. The same inputs give the same plan, so a restarted control plane plans again
//! from rows and loses nothing.
//!
//! Deliberately absent: dispatch (`engine`), the execution of a step on a host (`agent`), and anything specific to one app (`app-*`).

pub mod app;
pub mod check;
pub mod placement;
pub mod plan;
pub mod schedule;
pub mod status;
#[cfg(test)]
mod test_steps;
pub mod view;

pub use app::{App, PlanRefusal, RenderError, SecretPart, SecretSpec, StepOutput};
pub use check::{Finding, check};
pub use plan::{FailureScope, Plan, RecordKind, Retry, StepAction, StepKey, StepSpec};
pub use schedule::{Ending, Schedule, StepProgress, schedule};
pub use view::{ArtifactView, MemberView, NodeView, ReleaseView, SecretView, WorkloadView};
