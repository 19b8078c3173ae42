//! Compares what was seen with what must be true. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    expectation::{Aspect, Expected, ExpectedMember, Lifecycle},
    observation::{Cluster, Difference, Kubectl, LABEL, Machine, Observation},
    work::{EVERYWHERE, PROCESS, WEB},
};

/// Value of [`LABEL`] in the workload's settings.
pub(super) const LABEL_VALUE: &str = "b12";
/// The platform's ServiceAccounts for tenants.
const SERVICE_ACCOUNTS: &str = "system:serviceaccount:gpuaas-access:";

/// Result of one verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) aspect: Aspect,
    pub(super) ok: bool,
    pub(super) expected: String,
    pub(super) seen: String,
}

/// Verifies every aspect that applies, in the order of [`Aspect::ALL`].
pub(super) fn compare(expected: &Expected, seen: &Observation) -> Vec<Check> {
    let applying = Aspect::ALL.into_iter().filter(|aspect| aspect.applies_to(expected.lifecycle));
    applying.map(|aspect| check(aspect, expected, seen)).collect()
}

/// Returns the aspects whose verification failed.
pub(super) fn failed(checks: &[Check]) -> Vec<Aspect> {
    checks.iter().filter(|check| !check.ok).map(|check| check.aspect).collect()
}

fn check(aspect: Aspect, expected: &Expected, seen: &Observation) -> Check {
    let (wanted, found) = match aspect {
        Aspect::Members => members(expected, seen),
        Aspect::Nodes => nodes(expected, &seen.kubectl),
        Aspect::Cordons => in_cluster(&seen.kubectl, |cluster| cordons(expected, cluster)),
        Aspect::Labels => in_cluster(&seen.kubectl, |cluster| labels(expected, cluster)),
        Aspect::Pods => in_cluster(&seen.kubectl, |cluster| pods(expected, cluster, &seen.machines)),
        Aspect::Access => in_cluster(&seen.kubectl, access),
        Aspect::Files => files(expected, seen),
        Aspect::Processes => processes(expected, seen),
        Aspect::Residue => residue(expected, seen),
    };
    let differences = seen.api.differences.iter().filter(|difference| aspect_of(difference) == aspect);
    let mut problems: Vec<&str> = differences.map(|difference| difference.text.as_str()).collect();
    if aspect == Aspect::Members {
        problems.extend(seen.api.unknown.iter().map(String::as_str));
    }
    let (ok, mut text) = (found == wanted && problems.is_empty(), found);
    if !problems.is_empty() {
        text = format!("{text}; gpuaas workload diff: {}", problems.join(", "));
    }
    Check { aspect, ok, expected: wanted, seen: text }
}

/// Returns the aspect that a difference in the API is about.
fn aspect_of(difference: &Difference) -> Aspect {
    let field = difference.field.as_str();
    let is_of_file = ["config", "file", "unit", "token", "program"].iter().any(|part| field.contains(*part));
    match field {
        "cordon" => Aspect::Cordons,
        "kube_node" | "ready" | "version" => Aspect::Nodes,
        _ if field.starts_with("labels.") || field.starts_with("taint") => Aspect::Labels,
        _ if is_of_file => Aspect::Files,
        _ => Aspect::Members,
    }
}

fn members(expected: &Expected, seen: &Observation) -> (String, String) {
    let is_running = expected.lifecycle == Lifecycle::Running;
    let wanted = sorted(expected.members.iter().map(|member| {
        let state = match (is_running, member.drained) {
            (false, _) => "stopped",
            (true, true) => "drained",
            (true, false) => "ready",
        };
        format!("{} {state}, healthy, {} {}", member.node, member.role.unit(), runs(is_running))
    }));
    let found = sorted(seen.api.members.iter().map(|member| {
        let machine = seen.machines.iter().find(|machine| machine.node == member.node);
        let is_active = machine.is_some_and(|machine| machine.unit == "active");
        let unit = expected.role(&member.node).map_or("no unit", |role| role.unit());
        format!("{} {}, {}, {unit} {}", member.node, member.state, member.health, runs(is_active))
    }));
    let whole = format!("{}, {}", seen.api.lifecycle, seen.api.health);
    (joined(expected.lifecycle.in_api(), &wanted), joined(&whole, &found))
}

const fn runs(is_active: bool) -> &'static str {
    if is_active { "runs" } else { "does not run" }
}

fn nodes(expected: &Expected, kubectl: &Kubectl) -> (String, String) {
    let wanted = match expected.lifecycle {
        Lifecycle::Running => sorted(expected.members.iter().map(|member| format!("{} Ready", member.node))).join(", "),
        Lifecycle::Stopped | Lifecycle::Decommissioned => "no answer".to_owned(),
    };
    let found = match kubectl {
        Kubectl::NoAnswer(_) if expected.lifecycle != Lifecycle::Running => "no answer".to_owned(),
        Kubectl::NoAnswer(why) => format!("no answer: {why}"),
        Kubectl::Cluster(cluster) => {
            let state = |ready| if ready { "Ready" } else { "NotReady" };
            sorted(cluster.nodes.iter().map(|node| format!("{} {}", node.name, state(node.ready)))).join(", ")
        }
    };
    (wanted, found)
}

/// Compares a cluster that must answer. If it does not, [`Aspect::Nodes`] reports that, and the other aspects fail with it.
fn in_cluster(kubectl: &Kubectl, compare: impl FnOnce(&Cluster) -> (String, String)) -> (String, String) {
    match kubectl {
        Kubectl::Cluster(cluster) => compare(cluster),
        Kubectl::NoAnswer(why) => ("an answer".to_owned(), format!("no answer: {why}")),
    }
}

/// Lists a property of the expected members whose KubeNode exists; [`Aspect::Nodes`] reports the others.
fn of_members(expected: &Expected, cluster: &Cluster, property: impl Fn(&ExpectedMember) -> String) -> String {
    let exists = |member: &&ExpectedMember| cluster.nodes.iter().any(|node| node.name == member.node);
    let members = expected.members.iter().filter(exists);
    sorted(members.map(|member| format!("{} {}", member.node, property(member)))).join(", ")
}

fn cordons(expected: &Expected, cluster: &Cluster) -> (String, String) {
    let word = |schedulable: bool| (if schedulable { "schedulable" } else { "cordoned" }).to_owned();
    let found = |member: &ExpectedMember| {
        let node = cluster.nodes.iter().find(|node| node.name == member.node);
        word(node.is_some_and(|node| node.schedulable))
    };
    (of_members(expected, cluster, |member| word(!member.drained)), of_members(expected, cluster, found))
}

fn labels(expected: &Expected, cluster: &Cluster) -> (String, String) {
    let found = |member: &ExpectedMember| {
        let node = cluster.nodes.iter().find(|node| node.name == member.node);
        let label = node.and_then(|node| node.label.as_deref()).unwrap_or("absent");
        format!("{LABEL}={label}")
    };
    (of_members(expected, cluster, |_| format!("{LABEL}={LABEL_VALUE}")), of_members(expected, cluster, found))
}

fn pods(expected: &Expected, cluster: &Cluster, machines: &[Machine]) -> (String, String) {
    let takes_work = |node: &str| expected.member(node).is_some_and(|member| !member.drained);
    let (web, everywhere): (Vec<_>, Vec<_>) = cluster.pods.iter().partition(|pod| pod.app == WEB);
    let ready: Vec<_> = web.iter().filter(|pod| pod.ready).collect();
    let mut problems = Vec::new();
    if ready.len() != expected.replicas {
        problems.push(format!("{} of {} pods of {WEB} are ready", ready.len(), expected.replicas));
    }
    // Pods that wait for a node have none.
    let stray = web.iter().filter(|pod| !pod.node.is_empty() && !takes_work(&pod.node));
    problems.extend(stray.map(|pod| format!("{} is on {}", pod.name, pod.node)));
    if let Some(busy) = expected.busy.filter(|busy| !ready.iter().any(|pod| pod.node == *busy)) {
        problems.push(format!("no pod of {WEB} is ready on {busy}"));
    }
    for member in &expected.members {
        let here = everywhere.iter().filter(|pod| pod.ready && pod.node == member.node).count();
        if here != 1 {
            problems.push(format!("{here} pods of {EVERYWHERE} are ready on {}", member.node));
        }
        // After a stop the apiserver calls pods ready until their kubelet reports otherwise.
        let claimed = cluster.pods.iter().filter(|pod| pod.ready && pod.node == member.node).count();
        let machine = machines.iter().find(|machine| machine.node == member.node);
        let running = machine.map_or(0, |machine| machine.processes.iter().filter(|of| of.contains(PROCESS)).count());
        if running < claimed {
            problems.push(format!("{claimed} pods are ready on {}, but {running} run", member.node));
        }
    }
    let is_back = |name: &&String| cluster.pods.iter().any(|pod| pod.name == **name && pod.ready);
    problems.extend(expected.kept.iter().filter(|name| !is_back(name)).map(|name| format!("{name} is not back")));
    let wanted = format!("{} pods of {WEB}, one of {EVERYWHERE} on each node", expected.replicas);
    if problems.is_empty() { (wanted.clone(), wanted) } else { (wanted, problems.join(", ")) }
}

fn access(cluster: &Cluster) -> (String, String) {
    let wanted = format!("acts as {SERVICE_ACCOUNTS}…");
    match cluster.user.starts_with(SERVICE_ACCOUNTS) {
        true => (wanted.clone(), wanted),
        false => (wanted, format!("acts as {:?}", cluster.user)),
    }
}

fn files(expected: &Expected, seen: &Observation) -> (String, String) {
    let mut problems = Vec::new();
    for member in &expected.members {
        let boot =
            seen.machines.iter().find(|machine| machine.node == member.node).map(|machine| machine.boot.as_str());
        if boot != Some("enabled") {
            problems.push(format!("{} of {} is {}", member.role.unit(), member.node, boot.unwrap_or("unknown")));
        }
    }
    if let Some((node, text)) = &expected.config {
        let found = seen.machines.iter().find(|machine| machine.node == *node);
        if found.and_then(|machine| machine.config.as_ref()) != Some(text) {
            problems.push(format!("the configuration of {node} is not the platform's"));
        }
    }
    let wanted = "units are enabled, and configurations are the platform's".to_owned();
    if problems.is_empty() { (wanted.clone(), wanted) } else { (wanted, problems.join(", ")) }
}

fn processes(expected: &Expected, seen: &Observation) -> (String, String) {
    let of_members = seen.machines.iter().filter(|machine| expected.member(&machine.node).is_some());
    let found = sorted(
        of_members.flat_map(|machine| machine.processes.iter().map(|process| format!("{}: {process}", machine.node))),
    );
    nothing("no process runs", &found)
}

fn residue(expected: &Expected, seen: &Observation) -> (String, String) {
    let others = seen.machines.iter().filter(|machine| expected.member(&machine.node).is_none());
    let mut found = BTreeMap::new();
    for machine in others {
        let left: Vec<&str> = machine.paths.iter().chain(&machine.processes).map(String::as_str).collect();
        if !left.is_empty() {
            found.insert(machine.node.as_str(), left.join(" "));
        }
    }
    let found: Vec<String> = found.into_iter().map(|(node, left)| format!("{node}: {left}")).collect();
    nothing("nothing is left on nodes without a member", &found)
}

fn nothing(wanted: &str, found: &[String]) -> (String, String) {
    (wanted.to_owned(), if found.is_empty() { wanted.to_owned() } else { found.join(", ") })
}

fn sorted(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut items: Vec<String> = items.collect();
    items.sort();
    items
}

fn joined(whole: &str, parts: &[String]) -> String {
    std::iter::once(whole).chain(parts.iter().map(String::as_str)).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
