//! What an app must be able to say about itself. All of it pure; its cluster calls are the engine's `ClusterCalls`.

use gpuaas_model::{Fault, Health, MemberId, OperationKind, Reason, TaskType};
use gpuaas_wire::task::{Preflight, TaskFailure, UnitReport};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    placement::{Candidate, Placed},
    plan::{Plan, StepSpec},
    view::{MemberView, WorkloadView},
};

/// An app of the catalog. One implementation per app; the core never names one.
pub trait App: Send + Sync {
    /// What it is and what it promises.
    fn manifest(&self) -> &Manifest;

    /// The members that `intent` asks for, or every reason why it cannot be.
    ///
    /// `candidates` holds each allocation that the intent names and this project owns; a named one that is missing from it does not
    /// exist for the caller. `existing` members are those of a workload that grows; empty for a first deployment.
    fn place(
        &self,
        intent: &Value,
        candidates: &[Candidate],
        existing: &[MemberView],
    ) -> Result<Vec<Placed>, Vec<Reason>>;

    /// The allocations that `intent` names, so that they can be loaded; ill-formed parts are left to [`App::place`].
    fn named_allocations(&self, intent: &Value) -> Vec<gpuaas_model::AllocationId>;

    /// Every setting in `config` that it does not take, with the reason.
    fn check_config(&self, config: &Value) -> Vec<Reason>;

    /// Secrets that exist before the first step.
    fn initial_secrets(&self) -> Vec<SecretSpec>;

    /// The steps of an operation. `targets` are the members it is about; for a deployment, all.
    fn plan(&self, kind: OperationKind, workload: &WorkloadView, targets: &[MemberId]) -> Result<Plan, PlanRefusal>;

    /// What a node is looked at for by whoever wants to know whether the app could run there, whatever it would run; `None` when there is nothing
    /// to look for. On an `occupied` node, which carries a member, what a member itself takes and leaves is not looked for.
    fn preflight(&self, _occupied: bool) -> Option<Preflight> {
        None
    }

    /// The parameters of one attempt, from what is known now.
    fn render(&self, step: &StepSpec, workload: &WorkloadView) -> Result<Value, RenderError>;

    /// What a success taught. Fails when the result is not what the step must give, which fails the attempt.
    fn learn(&self, step: &StepSpec, result: &Value, workload: &WorkloadView) -> Result<Vec<Learned>, Box<Fault>>;

    /// What a failure means.
    fn diagnose(&self, step: &StepSpec, failure: &TaskFailure, workload: &WorkloadView) -> Fault;

    /// The units whose signals tell how a member of this component is.
    fn units(&self, component_key: &str) -> Vec<String>;

    /// How a member is, by what its unit says now.
    fn judge(&self, member: &MemberView, report: &UnitReport) -> (Health, Option<Fault>);
}

/// What the catalog shows of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Its short name in commands.
    pub slug: String,
    /// Its label, shown as it is.
    pub name: String,
    /// One sentence.
    pub summary: String,
    /// JSON Schema of the placement intent.
    pub placement_schema: Value,
    /// JSON Schema of the settings a tenant may make.
    pub config_schema: Value,
    /// What the platform promises.
    pub promises: Vec<String>,
    /// What it does not.
    pub not_promised: Vec<String>,
    /// Its phases, in order.
    pub phases: Vec<String>,
    /// Task types it needs, each with the oldest schema version that will do.
    pub tasks: Vec<(TaskType, u32)>,
    /// Kinds of operation it can plan.
    pub operations: Vec<OperationKind>,
    /// Files that a release must hold, by the release's own names.
    pub release_files: Vec<String>,
    /// The release's sum file.
    pub release_sums: String,
}

/// A secret that the platform makes at deployment: random lower-case hex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSpec {
    /// The app's own name for it.
    pub name: String,
    /// Random bytes in it; the text is twice as long.
    pub random_bytes: usize,
}

/// Something that a step taught.
#[derive(Clone, Debug, PartialEq)]
pub enum Learned {
    /// A fact, kept under the app's own name.
    Fact(String, Value),
    /// A secret that a node has deposited under the id it was given in the step's parameters.
    Deposited {
        /// The app's own name.
        name: String,
        /// SHA-256 of the bytes as the node told it; the engine compares.
        sha256: String,
    },
    /// A secret made of others, so that the app itself never sees the bytes.
    Composed {
        /// The app's own name.
        name: String,
        /// Its parts, in order.
        parts: Vec<SecretPart>,
    },
    /// Where clients reach the app, for the member the step is for.
    Endpoint(String),
}

/// A part of a composed secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretPart {
    /// Text as it is.
    Text(String),
    /// The bytes of another secret, by the app's own name.
    Secret(String),
}

/// Why an operation cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanRefusal {
    /// The app has no such operation.
    #[error("{app} cannot {kind}")]
    Unsupported {
        /// The app's slug.
        app: String,
        /// What was asked.
        kind: OperationKind,
        /// What to do instead.
        next: String,
    },
    /// The workload is not in a shape that allows it.
    #[error("{0}")]
    NotNow(String),
}

/// Parameters cannot be rendered yet or at all. A defect of the plan: the step ran before what it needs was learnt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step} needs {missing}, which nothing has taught")]
pub struct RenderError {
    /// The step.
    pub step: String,
    /// What is missing.
    pub missing: String,
}
