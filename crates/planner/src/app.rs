//! The interface of an app to the planner and the engine. All of it is pure; the calls to the app's cluster are the engine's
//! `AppEffects`.

use gpuaas_model::{Fault, Health, MemberId, OperationKind, Reason, TaskType};
use gpuaas_wire::task::{Preflight, TaskDefinition, TaskFailure, UnitReport};
use serde_json::Value;

use crate::{
    difference::Difference,
    manifest::Manifest,
    placement::{Candidate, Placed},
    plan::{Plan, StepKey, StepSpec},
    report::Judgment,
    request::{OperationRequest, PlanRefusal},
    view::{MemberView, WorkloadView},
};

/// What the platform knows of the members on a node before a preflight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupancy {
    /// No member is there, and every earlier one is known to be removed.
    Free,
    /// A member is there: the preflight excludes everything that a member itself occupies or leaves.
    Occupied,
    /// A member was given up there: the preflight includes every path that its residue check would report.
    GivenUp,
}

/// An app of the catalog. Each app has one implementation; the core names no app.
pub trait App: Send + Sync {
    /// Returns the description and the requirements of the app.
    fn manifest(&self) -> &Manifest;

    /// Returns the task types that only this app defines. Its manifest lists those that it uses, including general ones.
    fn tasks(&self) -> &'static [TaskDefinition];

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

    /// Returns the members that an operation on a deployed workload is about, or why there are none. The engine has checked `request`
    /// against the manifest.
    fn subjects(&self, request: &OperationRequest, workload: &WorkloadView) -> Result<Subjects, PlanRefusal>;

    /// Returns the operations that can be requested for this member, if the workload's lifecycle allows them and with every flag that such a
    /// request can set. None by default.
    fn member_operations(&self, _member: &MemberView, _workload: &WorkloadView) -> Vec<OperationKind> {
        Vec::new()
    }

    /// Returns the steps of an operation. The engine has checked `request` against the manifest. `targets` are the members that it is
    /// about; for a deployment, all.
    fn plan(
        &self,
        request: &OperationRequest,
        workload: &WorkloadView,
        targets: &[MemberId],
    ) -> Result<Plan, PlanRefusal>;

    /// Returns the checks that show whether the app could run on a node, independent of component and release; `None` if there are none.
    fn preflight(&self, _occupancy: Occupancy) -> Option<Preflight> {
        None
    }

    /// Renders the parameters of one attempt of a task or cluster call from the operation's request and the present state.
    fn render(
        &self,
        step: &StepSpec,
        request: &OperationRequest,
        workload: &WorkloadView,
    ) -> Result<Value, RenderError>;

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

    /// Derives the health of a member from its unit's report. Without a fault, an unwell member is awaited, and no person has to act.
    fn judge(&self, member: &MemberView, workload: &WorkloadView, report: &UnitReport) -> (Health, Option<Fault>);

    /// Says what a step does and what it interrupts, for people who read a plan before they start it.
    fn describe(&self, step: &StepSpec, request: &OperationRequest, workload: &WorkloadView) -> StepText;

    /// Returns how the cluster deviates from what the workload's rows want. `observed` is what the app's effects observed. Fails if it is
    /// not what they return.
    fn compare(&self, workload: &WorkloadView, observed: &Value) -> Result<Vec<Difference>, TaskFailure>;

    /// Returns the member through whose node the app's cluster is followed; `None` if the cluster is not expected to answer. None by default:
    /// the cluster is never followed.
    fn followed_through(&self, _workload: &WorkloadView) -> Option<MemberId> {
        None
    }

    /// Judges the members that the cluster must show. `observed` is what the app's effects observed while they followed the cluster, or why
    /// they could not ask it. Fails if it cannot be read. Judges nothing by default.
    ///
    /// The judgment is that of one moment: the engine decides how long it must last before it counts
    /// ([`crate::cluster_health`]). A failure that says nothing about the cluster itself, for example a full queue, judges no member.
    fn judge_cluster(
        &self,
        _workload: &WorkloadView,
        _observed: Result<&Value, &TaskFailure>,
    ) -> Result<ClusterJudgment, TaskFailure> {
        Ok(ClusterJudgment::default())
    }

    /// Returns the task, with its parameters, that shows whether the node of a member in service has what the platform wrote there. It changes
    /// nothing. `None`, the default, if the app has no such task.
    fn observation(&self, _member: &MemberView, _workload: &WorkloadView) -> Option<(TaskType, Value)> {
        None
    }

    /// Returns the differences of a member's node. `result` is that of the task of [`App::observation`]. The action of a difference must be a
    /// reconciliation if, and only if, a reconciliation corrects it: the platform then starts one by itself.
    fn node_differences(
        &self,
        _member: &MemberView,
        _workload: &WorkloadView,
        _result: &Value,
    ) -> Result<Vec<Difference>, TaskFailure> {
        Ok(Vec::new())
    }

    /// Returns what no comparison looks at, in sentences that name the command that does; `NAME` in them stands for the workload's name.
    fn not_compared(&self) -> Vec<String>;
}

/// What a cluster shows about its workload at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterJudgment {
    /// The judgments of the members that the cluster must show, also of healthy ones; no others.
    pub members: Vec<(MemberId, Judgment)>,
    /// The differences between the cluster and what the platform has set in it. Empty while it does not answer.
    pub drift: Vec<Difference>,
}

/// What a step does, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepText {
    /// Continues "it would": what the step does, without its node.
    pub does: String,
    /// What it interrupts, in one sentence; `None` if nothing.
    pub interrupts: Option<String>,
}

/// The members that an operation is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subjects {
    /// Members of the workload.
    pub existing: Vec<MemberId>,
    /// Members that the operation adds first; `None` if it adds none.
    pub added: Option<AddedMembers>,
}

/// Members that an operation adds.
#[derive(Clone, Debug, PartialEq)]
pub struct AddedMembers {
    /// Their placement, in the app's schema for additional members.
    pub intent: Value,
    /// The parameter that requests them, for example `parameters.by`; refusals of the placement name it.
    pub field: String,
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
    /// A fact, stored under a name that the app defines. One that holds for a member's machine is named `NAME/MEMBER`: it is forgotten when
    /// the member is removed or gets another machine.
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
    /// Address at which clients reach the app, served by the step's member. Replaces the member's earlier one of the same purpose.
    Endpoint {
        /// Purpose, defined by the app.
        purpose: String,
        /// Address, for example `https://10.0.0.7:6443`.
        address: String,
    },
}

/// A part of a composed secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretPart {
    /// Literal text.
    Text(String),
    /// The bytes of another secret, by its name.
    Secret(String),
}

/// The parameters of a step cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A defect of the plan: the step ran before the data that it needs existed.
    #[error("{step} needs {missing}, which no earlier step has provided")]
    Missing {
        /// Key of the step.
        step: StepKey,
        /// Name of the missing data.
        missing: String,
    },
    /// The app does not have the cluster call: another version planned the step.
    #[error("{step} makes the cluster call {call:?}, which this version of the app does not have")]
    UnknownCall {
        /// Key of the step.
        step: StepKey,
        /// Name of the call.
        call: String,
    },
}
