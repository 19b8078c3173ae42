//! The outputs of successful steps.

use gpuaas_model::{Check, Evidence, Fault, FaultClass, NextAction};
use gpuaas_planner::{SecretPart, StepAction, StepOutput, StepSpec, WorkloadView};
use gpuaas_wire::task::{PreflightReport, ResidueKind, ResidueReport, Rke2KubeconfigStored, Rke2Started, Severity};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{faults, names};

/// Returns the outputs of a step's result, or a fault if the result is no success.
pub(crate) fn apply_result(
    step: &StepSpec,
    result: &Value,
    workload: &WorkloadView,
) -> Result<Vec<StepOutput>, Box<Fault>> {
    let StepAction::NodeTask { task, .. } = &step.action else { return Ok(Vec::new()) };
    let whom = step.member.and_then(|id| workload.member(id)).map_or("", |member| member.name.as_str());
    use gpuaas_model::TaskType as T;
    match task {
        T::Preflight => preflight(&read::<PreflightReport>(result)?, step, workload),
        T::Rke2Start => Ok(started(&read::<Rke2Started>(result)?, step, workload)),
        T::Rke2KubeconfigRead => {
            let stored: Rke2KubeconfigStored = read(result)?;
            Ok(vec![StepOutput::Deposited { name: names::ADMIN_KUBECONFIG.to_owned(), sha256: stored.secret.sha256 }])
        }
        // RKE2 may have run once it is installed, whatever its node reports later.
        T::Rke2Install => Ok(vec![StepOutput::Fact(names::installed(whom), Value::Bool(true))]),
        T::Residue => residue(&read::<ResidueReport>(result)?, result, whom, workload),
        T::Noop
        | T::Inspect
        | T::Fix
        | T::ArtifactFetch
        | T::Rke2Configure
        | T::Rke2Stop
        | T::Rke2Uninstall
        | T::Rke2Observe => Ok(Vec::new()),
    }
}

fn read<T: DeserializeOwned>(result: &Value) -> Result<T, Box<Fault>> {
    serde_json::from_value(result.clone()).map_err(|error| {
        Box::new(Fault {
            code: gpuaas_model::Code::TaskUnknown.to_string(),
            class: FaultClass::Manual,
            summary: "the node returned an invalid task result".to_owned(),
            evidence: Some(Evidence::new("task result", None, &error.to_string())),
            next: NextAction { text: "check the version of the node's agent".to_owned(), command: None },
        })
    })
}

/// Reports all blocking findings at once; the next action is that of the first one, with a command if a safe one exists.
fn preflight(
    report: &PreflightReport,
    step: &StepSpec,
    workload: &WorkloadView,
) -> Result<Vec<StepOutput>, Box<Fault>> {
    let blocking = || report.findings.iter().filter(|finding| finding.severity == Severity::Blocking);
    let Some(first) = blocking().next() else { return Ok(Vec::new()) };
    let member = step.member.and_then(|id| workload.member(id));
    let whom = member.map_or("", |member| member.name.as_str());
    let findings: Vec<String> = blocking()
        .map(|finding| match &finding.evidence {
            Some(evidence) => format!("{} ({evidence})", finding.detail),
            None => finding.detail.clone(),
        })
        .collect();
    let fix = first.check.parse::<Check>().ok().and_then(Check::fix);
    let command = fix.zip(member).map(|(fix, member)| format!("gpuaas node fix {} {fix}", member.node.name));
    let command = command.unwrap_or_else(|| resume(workload));
    let evidence = Evidence::new(format!("preflight {}", first.check), None, &findings.join("; "));
    let mut fault = faults::PREFLIGHT.fault(whom, Some(command), Some(evidence));
    // The text comes from the node, where the tenant is root: it is marked as such, and shown only if the control plane knows the check.
    if first.check.parse::<Check>().is_ok() {
        fault.next.text = format!("reported by the node: {}", first.fix);
    }
    Err(Box::new(fault))
}

fn resume(workload: &WorkloadView) -> String {
    format!("gpuaas workload resume {}", workload.name)
}

/// Composes the join token from the CA's digest: agents verify the cluster's CA with it before they send anything.
fn started(started: &Rke2Started, step: &StepSpec, workload: &WorkloadView) -> Vec<StepOutput> {
    let Some(ca_sha256) = &started.ca_sha256 else { return Vec::new() };
    let address = step.member.and_then(|id| workload.member(id)).map(|member| member.node.address.clone());
    let mut outputs = vec![
        StepOutput::Fact(names::CA_SHA256.to_owned(), Value::String(ca_sha256.clone())),
        StepOutput::Composed {
            name: names::JOIN_TOKEN.to_owned(),
            parts: vec![
                SecretPart::Text(format!("K10{ca_sha256}::node:")),
                SecretPart::Secret(names::AGENT_TOKEN.to_owned()),
            ],
        },
    ];
    outputs.extend(address.map(|address| StepOutput::Endpoint(format!("https://{address}:6443"))));
    outputs
}

fn residue(
    report: &ResidueReport,
    result: &Value,
    whom: &str,
    workload: &WorkloadView,
) -> Result<Vec<StepOutput>, Box<Fault>> {
    // A residue that could not be checked is not clean.
    if report.items.is_empty() && report.unseen.is_empty() {
        return Ok(vec![StepOutput::Fact(format!("residue/{whom}"), result.clone())]);
    }
    let unseen = report.unseen.iter().map(|what| format!("not checked: {what}"));
    let items = report.items.iter().map(|item| format!("{} {}", kind(item.kind), item.what));
    let evidence = Evidence::new("residue report", None, &unseen.chain(items).collect::<Vec<_>>().join(", "));
    Err(Box::new(faults::RESIDUE.fault(whom, Some(resume(workload)), Some(evidence))))
}

const fn kind(kind: ResidueKind) -> &'static str {
    match kind {
        ResidueKind::Path => "path",
        ResidueKind::Mount => "mount",
        ResidueKind::Port => "listener",
        ResidueKind::Unit => "unit",
        ResidueKind::Process => "process",
        ResidueKind::Link => "link",
        ResidueKind::FirewallRule => "firewall rule",
    }
}
