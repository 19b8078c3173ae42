//! A drain that a PodDisruptionBudget blocks, until the tenant relaxes the budget; and the way back.

use std::time::Duration;

use anyhow::{Context, ensure};
use gpuaas_api_types::{Operation, OperationDetail};

use super::{ANSWERS, Life, WORKLOAD};
use crate::{
    node::Node,
    test::{check::check, command_output::capture_script, evidence, machines::WAIT_MAX, rke2::usage},
};

/// What `--sabotage` breaks: the budget does not exist, is never relaxed, and the KubeNode is cordoned again.
pub(super) const BUDGET_IN_FORCE: &str = "budget-in-force";
pub(super) const BUDGET_RELAXED: &str = "budget-relaxed";
pub(super) const CORDON_LIFTED: &str = "cordon-lifted";

/// Name of the budget.
const BUDGET: &str = "answers";
/// Longest drain; the same while the budget is never relaxed, which must fail soon.
const DRAIN_MAX: &str = "10m";
const HOPELESS_DRAIN_MAX: &str = "30s";
/// Longest time until the cluster has counted the pods of a new budget.
const COUNTED_MAX: Duration = Duration::from_secs(60);
/// Drops the requests to pods that arrive at the node for others.
const CUT: &str = "iptables --insert FORWARD --protocol tcp --dport 8080 --jump DROP";

/// Drains the moved agent and lets it accept work again. No request fails meanwhile.
pub(super) fn run_checks(life: &Life<'_>) -> anyhow::Result<()> {
    let member = life.member_on(life.moved)?.name;
    check("a budget of the tenant allows no disruption", || forbid_disruptions(life))?;
    let ((), results) = life.while_probing(|| {
        if life.breaks(ANSWERS) {
            capture_script(life.server, CUT)?;
        }
        let operation =
            check("a drain waits for it, and names the pod and the budget", || begin_blocked(life, &member))?;
        check("when the budget allows it, the drain ends by itself, and the pod runs elsewhere", || {
            relax_and_end(life, &operation)
        })?;
        check("the agent accepts work again, and pods return to it", || uncordon(life, &member))
    })?;
    check("no request failed meanwhile", || results.check_uninterrupted())
}

/// Creates a budget that needs every pod of the Deployment.
fn forbid_disruptions(life: &Life<'_>) -> anyhow::Result<()> {
    let pods = life.nodes().len();
    life.cluster.apply(&budget(pods))?;
    let counted = format!("jsonpath={{.status.currentHealthy}}={pods}");
    life.cluster.wait(&[&format!("poddisruptionbudget/{BUDGET}")], &counted, COUNTED_MAX)?;
    if life.breaks(BUDGET_IN_FORCE) {
        life.cluster.capture(&["delete", "poddisruptionbudget", BUDGET])?;
    }
    Ok(())
}

fn budget(pods: usize) -> String {
    format!(
        "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{ name: {BUDGET} }}
spec:
  minAvailable: {pods}
  selector: {{ matchLabels: {{ app: answers }} }}
"
    )
}

/// Begins the drain and waits until the operation names what blocks it. Pods with `emptyDir` volumes may be evicted: a release may contain some.
fn begin_blocked(life: &Life<'_>, member: &str) -> anyhow::Result<Operation> {
    let pod = usage::pods(life.cluster)?.into_iter().find(|pod| pod.node == life.moved.name().as_str());
    let pod = pod.context("no pod runs on the agent")?.name;
    let longest = if life.breaks(BUDGET_RELAXED) { HOPELESS_DRAIN_MAX } else { DRAIN_MAX };
    let options = ["--delete-emptydir-data", "--drain-timeout", longest, "--yes"];
    let drain = ["workload", "drain-member", WORKLOAD, member];
    let operation = life.control_plane.begin(&[&drain[..], &options].concat())?;
    let (held, by) = (format!("{pod} is held by"), format!("budget default/{BUDGET}"));
    let text = life.control_plane.until("the drain names the pod and its budget", WAIT_MAX, || {
        let detail: OperationDetail = life.control_plane.gpuaas(&["operation", "show", &operation.id])?;
        let has_ended = detail.operation.ended_at.is_some();
        ensure!(!has_ended, "the drain has ended: {}", evidence::describe_operation(life.control_plane, &detail));
        let mut texts = detail.steps.into_iter().filter_map(|step| step.detail);
        Ok(texts.find(|text| text.contains(&held) && text.contains(&by)))
    })?;
    println!("    {text}");
    ensure!(is_cordoned(life, life.moved)?, "the KubeNode still accepts pods");
    life.cluster.wait(&[&format!("pod/{pod}")], "condition=Ready", Duration::from_secs(1))?;
    Ok(operation)
}

fn relax_and_end(life: &Life<'_>, operation: &Operation) -> anyhow::Result<()> {
    if !life.breaks(BUDGET_RELAXED) {
        let relaxed = format!(r#"{{"spec":{{"minAvailable":{}}}}}"#, life.nodes().len() - 1);
        life.cluster.capture(&["patch", "poddisruptionbudget", BUDGET, "--type=merge", "--patch", &relaxed])?;
    }
    life.control_plane.wait_success(operation)?;
    let state = life.member_on(life.moved)?.state;
    ensure!(state == "drained", "the member is {state}");
    usage::check_pods_on(life.cluster, &[life.server, life.steady])
}

fn uncordon(life: &Life<'_>, member: &str) -> anyhow::Result<()> {
    life.control_plane.run_operation(&["workload", "uncordon-member", WORKLOAD, member])?;
    if life.breaks(CORDON_LIFTED) {
        life.cluster.capture(&["cordon", life.moved.name().as_str()])?;
    }
    let state = life.member_on(life.moved)?.state;
    ensure!(state == "ready", "the member is {state}");
    ensure!(!is_cordoned(life, life.moved)?, "the KubeNode is still cordoned");
    usage::spread_over(life.cluster, &life.nodes())
}

fn is_cordoned(life: &Life<'_>, node: &Node) -> anyhow::Result<bool> {
    let unschedulable = ["get", "node", node.name().as_str(), "--output", "jsonpath={.spec.unschedulable}"];
    Ok(life.cluster.capture(&unschedulable)? == "true")
}
