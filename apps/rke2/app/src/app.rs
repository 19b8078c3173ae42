//! The app's implementation of the planner's interface.

use gpuaas_app_rke2_tasks::{Rke2Role, TASKS};
use gpuaas_model::{
    AllocationId, Code, Evidence, Fault, FaultClass, Health, Lifecycle, MemberId, Name, NextAction, OperationKind,
    Reason, TaskType,
};
use gpuaas_planner::{
    App, ClusterJudgment, Difference, MemberView, Occupancy, OperationRequest, Plan, PlanRefusal, RecordKind,
    RenderError, SecretSpec, StepAction, StepOutput, StepSpec, StepText, Subjects, WorkloadView,
    manifest::Manifest,
    placement::{Candidate, Placed},
};
use gpuaas_wire::task::{Preflight, TaskDefinition, TaskFailure, UnitReport};
use serde_json::Value;

use crate::{
    cluster, config, describe, drift, faults, manifest, names, observed, placement, plan, plan::Deadlines, render,
    requirements, results, size::CLUSTER_BYTES, subjects,
};

/// Random bytes in a token: as many as in RKE2's own.
const TOKEN_BYTES: usize = 16;

/// The app *Self-managed Kubernetes (RKE2)*.
pub struct Rke2 {
    manifest: Manifest,
    deadlines: Deadlines,
}

impl Default for Rke2 {
    fn default() -> Self {
        Self::with_deadlines(Deadlines::default())
    }
}

impl Rke2 {
    /// Creates the app with the given deadlines instead of the default ones.
    pub fn with_deadlines(deadlines: Deadlines) -> Self {
        Self { manifest: manifest::manifest(), deadlines }
    }
}

impl App for Rke2 {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn tasks(&self) -> &'static [TaskDefinition] {
        TASKS
    }

    fn place(
        &self,
        intent: &Value,
        candidates: &[Candidate],
        existing: &[MemberView],
    ) -> Result<Vec<Placed>, Vec<Reason>> {
        placement::place(intent, candidates, existing, &self.manifest)
    }

    fn named_allocations(&self, intent: &Value) -> Vec<AllocationId> {
        placement::named(intent)
    }

    fn check_config(&self, config: &Value) -> Vec<Reason> {
        config::check(config)
    }

    fn initial_secrets(&self) -> Vec<SecretSpec> {
        let secret = |name: &str, random_bytes| SecretSpec { name: name.to_owned(), random_bytes };
        vec![
            secret(names::SERVER_TOKEN, TOKEN_BYTES),
            secret(names::AGENT_TOKEN, TOKEN_BYTES),
            // The server's node stores it later.
            secret(names::ADMIN_KUBECONFIG, 0),
        ]
    }

    fn subjects(&self, request: &OperationRequest, workload: &WorkloadView) -> Result<Subjects, PlanRefusal> {
        subjects::subjects(&request.parse()?, workload)
    }

    fn member_operations(&self, member: &MemberView, workload: &WorkloadView) -> Vec<OperationKind> {
        subjects::member_operations(member, workload)
    }

    fn plan(
        &self,
        request: &OperationRequest,
        workload: &WorkloadView,
        targets: &[MemberId],
    ) -> Result<Plan, PlanRefusal> {
        plan::plan(request, workload, targets, &self.deadlines)
    }

    fn preflight(&self, occupancy: Occupancy) -> Option<Preflight> {
        // A server's requirements include an agent's. The release is unknown here: the space for it is checked when the release is known.
        let preflight = |touched| requirements::preflight(Rke2Role::Server, touched, CLUSTER_BYTES);
        Some(match occupancy {
            Occupancy::Free => preflight(false),
            Occupancy::Occupied => preflight(true),
            Occupancy::GivenUp => requirements::with_residue(preflight(false)),
        })
    }

    fn render(
        &self,
        step: &StepSpec,
        request: &OperationRequest,
        workload: &WorkloadView,
    ) -> Result<Value, RenderError> {
        render::render(step, request, workload)
    }

    fn step_outputs(
        &self,
        step: &StepSpec,
        result: &Value,
        workload: &WorkloadView,
    ) -> Result<Vec<StepOutput>, Box<Fault>> {
        results::outputs(step, result, workload)
    }

    fn diagnose(&self, step: &StepSpec, failure: &TaskFailure, workload: &WorkloadView) -> Fault {
        let member = step.member.and_then(|id| workload.member(id));
        if let (StepAction::NodeTask { task: TaskType::Rke2Start, .. }, Some(member)) = (&step.action, member)
            && matches!(failure.code, Code::HostFailed | Code::TaskTimedOut)
        {
            return faults::diagnose_start(failure, render::role(member).unit(), member, workload);
        }
        if let (StepAction::ClusterCall { .. }, Some(member)) = (&step.action, member)
            && let Some(fault) = faults::diagnose_call(failure, member, workload)
        {
            return fault;
        }
        if let (StepAction::Record { record: RecordKind::AwaitNode }, Code::NodeUnreachable, Some(member)) =
            (&step.action, failure.code, member)
        {
            return node_lost(failure, member, workload);
        }
        let subject = member.map_or_else(|| workload.name.to_string(), |member| member.name.clone());
        Fault {
            code: failure.code.to_string(),
            class: class(failure.code),
            summary: format!("{subject}: {}", failure.message),
            evidence: Some(Evidence::new(format!("step {}", step.key), None, &failure.message)),
            next: if is_of_cluster(failure.code) && cluster::has_failed_server(workload) {
                NextAction::repair_control_plane("its server does not serve", workload.name.as_str())
            } else {
                next(failure.code, member, &workload.name)
            },
        }
    }

    fn units(&self, component_key: &str) -> Vec<String> {
        let role = if component_key == names::SERVER { "rke2-server.service" } else { "rke2-agent.service" };
        vec![role.to_owned()]
    }

    fn judge(&self, member: &MemberView, workload: &WorkloadView, report: &UnitReport) -> (Health, Option<Fault>) {
        if report.active == "active" && report.sub == "running" {
            return (Health::Healthy, None);
        }
        // Its node boots, or a person has started it: it is awaited, and nothing is to be repaired. After an exit, systemd counts the start as
        // a restart.
        if report.active == "activating" && !report.sub.starts_with("auto-restart") && report.n_restarts == 0 {
            return (Health::Degraded, None);
        }
        let text = format!(
            "{} is {}/{} (result {}, {} restarts, last status {})",
            report.unit, report.active, report.sub, report.result, report.n_restarts, report.exec_main_status
        );
        let evidence = Evidence::new(format!("unit {}", report.unit), Some(report.since), &text);
        (Health::Degraded, Some(faults::SERVICE_DOWN.fault(&faults::Subject::of(member, workload), Some(evidence))))
    }

    fn describe(&self, step: &StepSpec, request: &OperationRequest, workload: &WorkloadView) -> StepText {
        describe::describe(step, request, workload)
    }

    fn compare(&self, workload: &WorkloadView, observed: &Value) -> Result<Vec<Difference>, TaskFailure> {
        observed::compare(workload, observed)
    }

    fn followed_through(&self, workload: &WorkloadView) -> Option<MemberId> {
        cluster::followed_through(workload)
    }

    fn judge_cluster(
        &self,
        workload: &WorkloadView,
        observed: Result<&Value, &TaskFailure>,
    ) -> Result<ClusterJudgment, TaskFailure> {
        cluster::judge(workload, observed)
    }

    fn observation(&self, member: &MemberView, workload: &WorkloadView) -> Option<(TaskType, Value)> {
        let observe = drift::observation(member, workload)?;
        let params = serde_json::to_value(observe).expect("task parameters are plain data with text keys");
        Some((TaskType::Rke2Observe, params))
    }

    fn node_differences(
        &self,
        member: &MemberView,
        workload: &WorkloadView,
        result: &Value,
    ) -> Result<Vec<Difference>, TaskFailure> {
        drift::differences(member, workload, result)
    }

    fn not_compared(&self) -> Vec<String> {
        let what = "files and services on the nodes at this moment. The platform checks them after every change";
        vec![format!("{what}; to write them again: gpuaas workload reconcile NAME")]
    }
}

/// Returns the fault of a member whose node has not returned.
fn node_lost(failure: &TaskFailure, member: &MemberView, workload: &WorkloadView) -> Fault {
    Fault {
        code: failure.code.to_string(),
        class: FaultClass::Manual,
        summary: format!("{} on {}: {}", member.name, member.machine.name, failure.message),
        evidence: None,
        // In a running workload, the failed operation is the removal of one member.
        next: match workload.lifecycle {
            Lifecycle::Running => {
                NextAction::resume_or_give_up_member(&workload.name, &member.machine.name, &member.name)
            }
            _ => NextAction::resume_or_give_up(&workload.name, &member.machine.name),
        },
    }
}

/// Returns what a tenant does after a failure with this code.
fn next(code: Code, member: Option<&MemberView>, workload: &Name) -> NextAction {
    let node = member.map_or("the node", |member| member.machine.name.as_str());
    match code {
        Code::DiskFull => NextAction::ask_operator("free disk space", node, workload),
        Code::AgentLedgerDamaged => {
            let enroll = format!("ask the operator to enroll {node} again (gpuaas node enroll {node})");
            NextAction::then_resume(&enroll, workload)
        }
        // The platform has repeated the step as often as it may; the cause may have passed since.
        _ if class(code) == FaultClass::Retryable => NextAction::resume("the step is repeated", workload),
        _ => NextAction::then_resume("resolve the reported failure", workload),
    }
}

/// Returns true for the failures of a call or task that a cluster did not answer.
const fn is_of_cluster(code: Code) -> bool {
    matches!(code, Code::ClusterUnreachable | Code::ClusterNotReady)
}

/// Returns the class of a failure that does not depend on RKE2.
fn class(code: Code) -> FaultClass {
    match code {
        Code::NodeUnreachable
        | Code::ServerUnreachable
        | Code::ClusterUnreachable
        | Code::ClusterNotReady
        | Code::RateLimited
        | Code::NodeBusy
        | Code::Unavailable
        | Code::ArtifactTruncated
        | Code::DiskFull
        | Code::EnvelopeExpired
        | Code::FenceTooLow
        | Code::StaleAttempt
        | Code::TaskTimedOut => FaultClass::Retryable,
        _ => FaultClass::Manual,
    }
}
