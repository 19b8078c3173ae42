//! Turns what a workload should be and what was last seen of it into the next steps.
//!
//! Pure: no clock but the `now` it is given, no I/O, no randomness. The same inputs give the same plan, so a crashed
//! control plane plans again from rows and loses nothing.
//!
//! Deliberately absent: dispatch (`engine`), what a step does on a host (`agent`), anything one app alone knows (`app-*`).

pub mod app;
pub mod check;
#[cfg(test)]
mod given;
pub mod placement;
pub mod plan;
pub mod schedule;
pub mod status;
pub mod view;

pub use app::{App, Learned, PlanRefusal, RenderError, SecretPart, SecretSpec};
pub use check::{Finding, check};
pub use plan::{FailureScope, Plan, RecordKind, Retry, StepAction, StepKey, StepSpec};
pub use schedule::{Ending, Schedule, StepProgress, schedule};
pub use view::{ArtifactView, MemberView, NodeView, ReleaseView, SecretView, WorkloadView};
