//! What each success teaches.

use gpuaas_model::{Evidence, Fault, FaultClass, NextAction};
use gpuaas_planner::{Learned, SecretPart, StepAction, StepSpec, WorkloadView};
use gpuaas_wire::task::{PreflightReport, ResidueReport, Rke2KubeconfigStored, Rke2Started, Severity};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{faults, names};

/// What a success taught, or why it is none.
pub(crate) fn learn(step: &StepSpec, result: &Value, workload: &WorkloadView) -> Result<Vec<Learned>, Box<Fault>> {
    let StepAction::NodeTask { task, .. } = &step.action else { return Ok(Vec::new()) };
    let whom = step.member.and_then(|id| workload.member(id)).map_or("", |member| member.name.as_str());
    use gpuaas_model::TaskType as T;
    match task {
        T::Preflight => preflight(&read::<PreflightReport>(result)?, whom),
        T::Rke2Start => Ok(started(&read::<Rke2Started>(result)?, step, workload)),
        T::Rke2KubeconfigRead => {
            let stored: Rke2KubeconfigStored = read(result)?;
            Ok(vec![Learned::Deposited { name: names::ADMIN_KUBECONFIG.to_owned(), sha256: stored.secret.sha256 }])
        }
        T::Residue => residue(&read::<ResidueReport>(result)?, result, whom),
        T::Noop
        | T::Inspect
        | T::ArtifactFetch
        | T::Rke2Install
        | T::Rke2Configure
        | T::Rke2Stop
        | T::Rke2Observe
        | T::Rke2Uninstall => Ok(Vec::new()),
    }
}

fn read<T: DeserializeOwned>(result: &Value) -> Result<T, Box<Fault>> {
    serde_json::from_value(result.clone()).map_err(|error| {
        Box::new(Fault {
            code: gpuaas_model::Code::TaskUnknown.to_string(),
            class: FaultClass::Manual,
            summary: "the node's answer makes no sense".to_owned(),
            evidence: Some(Evidence::new("task result", None, &error.to_string())),
            next: NextAction { text: "see which version the node's agent has".to_owned(), command: None },
        })
    })
}

fn preflight(report: &PreflightReport, whom: &str) -> Result<Vec<Learned>, Box<Fault>> {
    match report.findings.iter().find(|finding| finding.severity == Severity::Blocking) {
        None => Ok(Vec::new()),
        Some(finding) => {
            let evidence = Evidence::new(format!("preflight {}", finding.check), None, &finding.detail);
            let mut fault = faults::PREFLIGHT.fault(whom, None, Some(evidence));
            fault.next.text.clone_from(&finding.fix);
            Err(Box::new(fault))
        }
    }
}

/// The CA's digest makes the join token: agents check the cluster's CA by it before they say anything.
fn started(started: &Rke2Started, step: &StepSpec, workload: &WorkloadView) -> Vec<Learned> {
    let Some(ca_sha256) = &started.ca_sha256 else { return Vec::new() };
    let address = step.member.and_then(|id| workload.member(id)).map(|member| member.node.address.clone());
    let mut learned = vec![
        Learned::Fact(names::CA_SHA256.to_owned(), Value::String(ca_sha256.clone())),
        Learned::Composed {
            name: names::JOIN_TOKEN.to_owned(),
            parts: vec![
                SecretPart::Text(format!("K10{ca_sha256}::node:")),
                SecretPart::Secret(names::AGENT_TOKEN.to_owned()),
            ],
        },
    ];
    learned.extend(address.map(|address| Learned::Endpoint(format!("https://{address}:6443"))));
    learned
}

fn residue(report: &ResidueReport, result: &Value, whom: &str) -> Result<Vec<Learned>, Box<Fault>> {
    if report.items.is_empty() {
        return Ok(vec![Learned::Fact(format!("residue/{whom}"), result.clone())]);
    }
    let items: Vec<&str> = report.items.iter().map(|item| item.what.as_str()).collect();
    let evidence = Evidence::new("residue report", None, &items.join(", "));
    Err(Box::new(faults::RESIDUE.fault(whom, None, Some(evidence))))
}
