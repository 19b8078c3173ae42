//! Turns the desired and the last observed state of a workload into the next steps.
//!
//! Pure: no clock but the given `now`, no I/O, no randomness. The same inputs give the same plan, so a restarted control plane plans again
//! from rows and loses nothing.
//!
//! Deliberately absent: dispatch (`engine`), the execution of a step on a host (`agent`), and anything specific to one app (`apps/`).

pub mod app;
mod call;
pub mod check;
pub mod cluster_health;
pub mod control;
pub mod difference;
pub mod drift;
pub mod judgments;
pub mod lifecycle;
pub mod manifest;
pub mod outline;
pub mod placement;
pub mod plan;
mod plan_digest;
pub mod recovery;
pub mod report;
pub mod request;
pub mod schedule;
pub mod schema;
pub mod status;
#[cfg(test)]
mod test_steps;
#[cfg(any(test, feature = "test-views"))]
pub mod test_views;
pub mod view;
pub mod waiting;

pub use app::{
    AddedMembers, App, ClusterJudgment, Occupancy, RenderError, SecretPart, SecretSpec, StepOutput, StepText, Subjects,
};
pub use call::ClusterCall;
pub use check::{Finding, check};
pub use control::{ControlRefusal, NewestOperation};
pub use difference::{Difference, NodeSight, Unknown};
pub use drift::Drift;
pub use manifest::{Manifest, OperationSpec};
pub use outline::{OutlinedMember, OutlinedStep, PlanOutline};
pub use plan::{FailureScope, Plan, RecordKind, Retry, StepAction, StepKey, StepSpec};
pub use plan_digest::{PlanDigest, PlanDigestInvalid};
pub use request::{OperationRequest, Parameters, PlanRefusal};
pub use schedule::{Ending, Schedule, StepProgress, finished_members, operation_failed, schedule};
pub use view::{ArtifactView, MachineView, MemberView, NodeView, ReleaseView, SecretView, WorkloadView};
