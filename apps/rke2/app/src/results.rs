//! The outputs of successful steps.

use gpuaas_app_rke2_tasks::{Rke2KubeconfigStored, Rke2Started};
use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{Check, Endpoint, Evidence, Fault, FaultClass, NextAction};
use gpuaas_planner::{MemberView, SecretPart, StepAction, StepOutput, StepSpec, WorkloadView};
use gpuaas_wire::task::{PreflightReport, ResidueReport, Severity};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{call::CallName, faults, names};

/// Longest uid of a KubeNode that is kept, in bytes; Kubernetes' own have 36.
const UID_BYTES_MAX: usize = 64;

/// Returns the outputs of a step's result, or a fault if the result is no success.
pub(crate) fn outputs(step: &StepSpec, result: &Value, workload: &WorkloadView) -> Result<Vec<StepOutput>, Box<Fault>> {
    let whom = step.member.and_then(|id| workload.member(id)).map_or("", |member| member.name.as_str());
    let task = match &step.action {
        StepAction::NodeTask { task, .. } => task,
        StepAction::ClusterCall { call } => return Ok(of_call(CallName::parse(call), whom, result)),
        StepAction::Record { .. } => return Ok(Vec::new()),
    };
    use gpuaas_model::TaskType as T;
    match task {
        T::Preflight => preflight(&read::<PreflightReport>(result, step, workload)?, step, workload),
        T::Rke2Start => Ok(started(&read::<Rke2Started>(result, step, workload)?, step, workload)),
        T::Rke2KubeconfigRead => {
            let stored: Rke2KubeconfigStored = read(result, step, workload)?;
            Ok(vec![StepOutput::Deposited { name: names::ADMIN_KUBECONFIG.to_owned(), sha256: stored.secret.sha256 }])
        }
        // RKE2 may have run once it is installed, whatever its node reports later.
        T::Rke2Install => Ok(vec![StepOutput::Fact(names::installed(whom), Value::Bool(true))]),
        T::Rke2Uninstall => Ok(vec![StepOutput::Fact(names::joined(whom), Value::Bool(false))]),
        T::Residue => residue(&read::<ResidueReport>(result, step, workload)?, step, workload),
        T::Noop
        | T::Inspect
        | T::Fix
        | T::ArtifactFetch
        | T::Rke2Configure
        | T::Rke2Stop
        | T::Rke2Enable
        | T::Rke2Observe => Ok(Vec::new()),
    }
}

/// Remembers which members have joined, and who cordoned a KubeNode: a start lifts the platform's cordon, and never a person's.
/// Remembers also the uid of a KubeNode, so that a removal deletes no other one.
fn of_call(call: Option<CallName>, member: &str, result: &Value) -> Vec<StepOutput> {
    let (name, is_so) = match call {
        Some(CallName::CordonKubeNode) => (names::cordoned(member), true),
        Some(CallName::UncordonKubeNode) => (names::cordoned(member), false),
        Some(CallName::KubeNodeReady) => (names::joined(member), true),
        Some(
            CallName::ApiReady
            | CallName::KubeNodes
            | CallName::DrainKubeNode
            | CallName::DeleteKubeNode
            | CallName::ForgetNodePassword
            | CallName::LabelKubeNode
            | CallName::DeliverAccess,
        )
        | None => return Vec::new(),
    };
    // The tenant controls what its apiserver says.
    let uid = result.get("uid").and_then(Value::as_str).filter(|uid| (1..=UID_BYTES_MAX).contains(&uid.len()));
    let uid = uid.map(|uid| StepOutput::Fact(names::kube_node_uid(member), Value::String(uid.to_owned())));
    [StepOutput::Fact(name, Value::Bool(is_so))].into_iter().chain(uid).collect()
}

/// Reads the result of a step that runs on a node.
fn read<T: DeserializeOwned>(result: &Value, step: &StepSpec, workload: &WorkloadView) -> Result<T, Box<Fault>> {
    let member = member_of(step, workload)?;
    serde_json::from_value(result.clone()).map_err(|error| {
        Box::new(Fault {
            code: gpuaas_model::Code::TaskResultInvalid.to_string(),
            class: FaultClass::Manual,
            summary: "the node returned an invalid task result".to_owned(),
            evidence: Some(Evidence::new("task result", None, &error.to_string())),
            next: NextAction::ask_operator("check the version of the agent", &member.machine.name, &workload.name),
        })
    })
}

/// Reports all blocking findings at once; the next action is that of the first one.
fn preflight(
    report: &PreflightReport,
    step: &StepSpec,
    workload: &WorkloadView,
) -> Result<Vec<StepOutput>, Box<Fault>> {
    let blocking = || report.findings.iter().filter(|finding| finding.severity == Severity::Blocking);
    let Some(first) = blocking().next() else { return Ok(Vec::new()) };
    let member = member_of(step, workload)?;
    let findings: Vec<String> = blocking()
        .map(|finding| match &finding.evidence {
            Some(evidence) => format!("{} ({evidence})", finding.detail),
            None => finding.detail.clone(),
        })
        .collect();
    let evidence = Evidence::new(format!("preflight {}", first.check), None, &findings.join("; "));
    let mut fault = faults::PREFLIGHT.fault(&faults::Subject::of(member, workload), Some(evidence));
    // The text comes from the node, where the tenant is root: it is marked as such, and shown only if the control plane knows the check.
    if let Ok(check) = first.check.parse::<Check>() {
        let node = &member.machine.name;
        fault.summary = format!("{}: blocking finding {check} on {node}", member.name);
        let ask = match check.fix() {
            Some(fix) => format!("ask the operator to run gpuaas node fix {node} {fix}"),
            None => format!("ask the operator to follow this advice of the agent on {node}: \"{}\"", first.fix),
        };
        fault.next = NextAction::then_resume(&ask, &workload.name);
    }
    Err(Box::new(fault))
}

/// Returns the member of a step that runs on a node.
fn member_of<'w>(step: &StepSpec, workload: &'w WorkloadView) -> Result<&'w MemberView, Box<Fault>> {
    step.member.and_then(|id| workload.member(id)).ok_or_else(|| {
        Box::new(Fault {
            code: gpuaas_model::Code::Internal.to_string(),
            class: FaultClass::Manual,
            summary: format!("step {} names no member of the workload", step.key),
            evidence: None,
            next: NextAction::resume("the operation is planned again", &workload.name),
        })
    })
}

/// Remembers when the unit was started. Composes the join token from the CA's digest: agents verify the cluster's CA with it before they
/// send anything.
fn started(started: &Rke2Started, step: &StepSpec, workload: &WorkloadView) -> Vec<StepOutput> {
    let member = step.member.and_then(|id| workload.member(id));
    // Without a time, the one of an earlier start must not count.
    let started_at = started.started_at.map_or(Value::Null, |at| Value::from(at.as_millis()));
    let fact = member.map(|member| StepOutput::Fact(names::started(&member.name), started_at));
    let mut outputs: Vec<StepOutput> = fact.into_iter().collect();
    let Some(ca_sha256) = &started.ca_sha256 else { return outputs };
    let address = member.map(|member| member.machine.address.clone());
    outputs.extend([
        StepOutput::Fact(names::CA_SHA256.to_owned(), Value::String(ca_sha256.clone())),
        StepOutput::Composed {
            name: names::JOIN_TOKEN.to_owned(),
            parts: vec![
                SecretPart::Text(format!("K10{ca_sha256}::node:")),
                SecretPart::Secret(names::AGENT_TOKEN.to_owned()),
            ],
        },
    ]);
    outputs.extend(address.map(|address| StepOutput::Endpoint {
        purpose: Endpoint::API.to_owned(),
        address: format!("https://{address}:6443"),
    }));
    outputs
}

/// Refuses a node that is not clean. The uninstall has removed what it can, so what is left needs the node's operator; a tenant has no shell
/// there.
fn residue(report: &ResidueReport, step: &StepSpec, workload: &WorkloadView) -> Result<Vec<StepOutput>, Box<Fault>> {
    let member = member_of(step, workload)?;
    // A residue that could not be checked is not clean.
    if report.items.is_empty() && report.unseen.is_empty() || bugs::on(Bug::ResidueIgnored) {
        return Ok(Vec::new());
    }
    let unseen = report.unseen.iter().map(|what| format!("not checked: {what}"));
    let items = report.items.iter().map(ToString::to_string);
    let evidence = Evidence::new("residue report", None, &unseen.chain(items).collect::<Vec<_>>().join(", "));
    let mut fault = faults::RESIDUE.fault(&faults::Subject::of(member, workload), Some(evidence));
    let node = &member.machine.name;
    let reset =
        format!("ask the operator to reset and reimage {node} (gpuaas node reset {node} --force --reason TEXT)");
    fault.next = NextAction::then_resume(&reset, &workload.name);
    Err(Box::new(fault))
}
