//! The interface of an app to the planner and the engine. All of it is pure; the calls to the app's cluster are the engine's
//! `AppEffects`.

use gpuaas_model::{Fault, Health, MemberId, OperationKind, Reason, TaskType};
use gpuaas_wire::task::{Preflight, TaskFailure, UnitReport};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    placement::{Candidate, Placed},
    plan::{Plan, StepSpec},
    view::{MemberView, WorkloadView},
};

/// An app of the catalog. Each app has one implementation; the core names no app.
pub trait App: Send + Sync {
    /// Returns the description and the requirements of the app.
    fn manifest(&self) -> &Manifest;

    /// Returns the members that `intent` requests, or every reason why it is impossible.
    ///
    /// `candidates` has each allocation that the intent names and this project owns; a named one that is missing there does not exist for
    /// the caller. `existing` has the members of a workload that grows; it is empty for a first deployment.
    fn place(
        &self,
        intent: &Value,
        candidates: &[Candidate],
        existing: &[MemberView],
    ) -> Result<Vec<Placed>, Vec<Reason>>;

    /// Returns the allocations that `intent` names, so that they can be loaded; [`App::place`] reports ill-formed parts.
    fn named_allocations(&self, intent: &Value) -> Vec<gpuaas_model::AllocationId>;

    /// Returns a reason for every setting in `config` that the app does not accept.
    fn check_config(&self, config: &Value) -> Vec<Reason>;

    /// Returns the secrets that must exist before the first step.
    fn initial_secrets(&self) -> Vec<SecretSpec>;

    /// Returns the steps of an operation. `targets` are the members that it is about; for a deployment, all.
    fn plan(&self, kind: OperationKind, workload: &WorkloadView, targets: &[MemberId]) -> Result<Plan, PlanRefusal>;

    /// Returns the checks that show whether the app could run on a node, independent of component and release; `None` if there are none.
    /// For an `occupied` node, which has a member, they exclude everything that a member itself occupies or leaves.
    fn preflight(&self, _occupied: bool) -> Option<Preflight> {
        None
    }

    /// Renders the parameters of one attempt from the present state.
    fn render(&self, step: &StepSpec, workload: &WorkloadView) -> Result<Value, RenderError>;

    /// Returns the outputs of a successful step. Fails if the result is not what the step must return; this fails the attempt.
    fn step_outputs(
        &self,
        step: &StepSpec,
        result: &Value,
        workload: &WorkloadView,
    ) -> Result<Vec<StepOutput>, Box<Fault>>;

    /// Maps a failure to a fault with its next action.
    fn diagnose(&self, step: &StepSpec, failure: &TaskFailure, workload: &WorkloadView) -> Fault;

    /// Returns the units whose reports show the health of a member of this component.
    fn units(&self, component_key: &str) -> Vec<String>;

    /// Derives the health of a member from its unit's report.
    fn judge(&self, member: &MemberView, workload: &WorkloadView, report: &UnitReport) -> (Health, Option<Fault>);
}

/// Description of an app in the catalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Short name for commands.
    pub slug: String,
    /// Display name.
    pub name: String,
    /// Description in one sentence.
    pub summary: String,
    /// JSON Schema of the placement intent.
    pub placement_schema: Value,
    /// JSON Schema of the settings that a tenant can make.
    pub config_schema: Value,
    /// Properties that the platform promises.
    pub promises: Vec<String>,
    /// Properties that the platform does not promise.
    pub not_promised: Vec<String>,
    /// Phases in their order.
    pub phases: Vec<String>,
    /// Task types that the app needs, each with the oldest version of its parameters that suffices.
    pub tasks: Vec<(TaskType, u32)>,
    /// Kinds of operation that it can plan.
    pub operations: Vec<OperationKind>,
    /// Files that a release must contain, by the release's own names.
    pub release_files: Vec<String>,
    /// Name of the release's file of checksums.
    pub release_sums: String,
}

/// A secret that the platform creates at deployment: random lower-case hex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSpec {
    /// Name, defined by the app.
    pub name: String,
    /// Number of random bytes; the text has twice as many characters.
    pub random_bytes: usize,
}

/// An output of a successful step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutput {
    /// A fact, stored under a name that the app defines.
    Fact(String, Value),
    /// A secret that a node has stored under the id in the step's parameters.
    Deposited {
        /// Name, defined by the app.
        name: String,
        /// SHA-256 of the bytes as the node reported it; the engine compares it.
        sha256: String,
    },
    /// A secret composed of others, so that the app itself never handles the bytes.
    Composed {
        /// Name, defined by the app.
        name: String,
        /// Parts in their order.
        parts: Vec<SecretPart>,
    },
    /// Address at which clients reach the app, served by the step's member.
    Endpoint(String),
}

/// A part of a composed secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretPart {
    /// Literal text.
    Text(String),
    /// The bytes of another secret, by its name.
    Secret(String),
}

/// Reason why an operation cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanRefusal {
    /// The app has no operation of this kind.
    #[error("{app} cannot {kind}")]
    Unsupported {
        /// Slug of the app.
        app: String,
        /// Kind of the operation.
        kind: OperationKind,
        /// Alternative for the user.
        next: String,
    },
    /// The workload's present state does not allow the operation.
    #[error("{0}")]
    NotNow(String),
}

/// The parameters of a step cannot be rendered. A defect of the plan: the step ran before the data that it needs existed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step} needs {missing}, which no earlier step has provided")]
pub struct RenderError {
    /// Key of the step.
    pub step: String,
    /// Name of the missing data.
    pub missing: String,
}
