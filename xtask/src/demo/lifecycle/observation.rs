//! What the platform's API, kubectl and the nodes themselves show of the workload. Reads only, and judges nothing.

use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use super::{
    expectation::{Expected, Lifecycle, NODES, Role},
    work,
};
use crate::demo::running::{RunningDemo, WORKLOAD};

/// Key of the label that the tenant's settings give every KubeNode.
pub(super) const LABEL: &str = "rack";
/// Paths of the distribution that a removal must leave on no node, relative to the node's root.
const REMOVED_PATHS: [&str; 16] = [
    "usr/local/bin/rke2",
    "usr/local/bin/rke2-killall.sh",
    "usr/local/bin/rke2-uninstall.sh",
    "usr/local/lib/systemd/system/rke2-server.service",
    "usr/local/lib/systemd/system/rke2-agent.service",
    "usr/local/share/rke2",
    "etc/rancher/rke2",
    "etc/rancher/node",
    "var/lib/rancher/rke2",
    "var/lib/kubelet",
    "etc/cni",
    "opt/cni/bin",
    "var/lib/cni",
    "var/log/pods",
    "var/log/containers",
    "var/log/calico",
];
/// Prefixes of the paths of the distribution's programs, relative to the node's root.
const PROGRAMS: [&str; 2] = ["usr/local/bin/rke2", "var/lib/rancher/rke2/"];
/// Configuration file of the distribution, relative to the node's root.
pub(super) const CONFIG: &str = "etc/rancher/rke2/config.yaml";

/// What was seen at one time.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Observation {
    pub(super) api: Api,
    pub(super) kubectl: Kubectl,
    pub(super) machines: Vec<Machine>,
}

/// What the platform's API says.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Api {
    pub(super) lifecycle: String,
    pub(super) health: String,
    /// The members that are not removed.
    pub(super) members: Vec<Member>,
    pub(super) differences: Vec<Difference>,
    /// What the comparison could not ask.
    pub(super) unknown: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) state: String,
    pub(super) health: String,
}

/// A deviation that `gpuaas workload diff` reports.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Difference {
    pub(super) field: String,
    pub(super) text: String,
}

/// What kubectl says with the tenant's kubeconfig.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kubectl {
    Cluster(Cluster),
    /// The cluster does not answer.
    NoAnswer(String),
}

impl Default for Kubectl {
    fn default() -> Self {
        Self::NoAnswer("not asked".to_owned())
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Cluster {
    /// Name of the user as which kubectl acts.
    pub(super) user: String,
    pub(super) nodes: Vec<KubeNode>,
    pub(super) pods: Vec<Pod>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct KubeNode {
    pub(super) name: String,
    pub(super) ready: bool,
    pub(super) schedulable: bool,
    /// Value of [`LABEL`].
    pub(super) label: Option<String>,
}

/// A pod of the demo's Deployment or DaemonSet.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) app: String,
    pub(super) node: String,
    /// Ready, and not being deleted.
    pub(super) ready: bool,
}

/// What the files, the processes and the init of a node show.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Machine {
    pub(super) node: String,
    /// State of the distribution's unit, for example `active`; empty on a node without a member.
    pub(super) unit: String,
    /// Whether the unit starts at boot, for example `enabled`; empty on a node without a member.
    pub(super) boot: String,
    /// Content of the configuration file. Stays out of the report.
    #[serde(skip)]
    pub(super) config: Option<String>,
    /// Processes of the distribution.
    pub(super) processes: Vec<String>,
    /// Paths of the distribution that exist.
    pub(super) paths: Vec<String>,
}

/// Observes everything that the expectations are about.
pub(super) fn observe(running: &RunningDemo, expected: &Expected) -> anyhow::Result<Observation> {
    let shown = running.gpuaas(&["workload", "show", WORKLOAD])?;
    let api = api(&shown, &running.diff()?);
    let kubectl = match expected.lifecycle {
        Lifecycle::Running | Lifecycle::Stopped => cluster(running),
        // Its kubeconfig leads to a node that may serve something else by now.
        Lifecycle::Decommissioned => Kubectl::default(),
    };
    let processes: Vec<String> = running.processes()?.into_iter().map(|process| process.command).collect();
    let machines = NODES.iter().map(|node| machine(running, expected, node, &processes));
    Ok(Observation { api, kubectl, machines: machines.collect::<anyhow::Result<_>>()? })
}

fn api(shown: &Value, diff: &Value) -> Api {
    let members = list(shown, "/members").filter(|member| text(member, "/state") != "removed");
    let difference = |of: &Value| Difference {
        field: text(of, "/field"),
        text: format!(
            "{} {}: {} instead of {}",
            of.pointer("/member").and_then(Value::as_str).unwrap_or("workload"),
            text(of, "/field"),
            text(of, "/observed"),
            text(of, "/desired")
        ),
    };
    Api {
        lifecycle: text(shown, "/workload/lifecycle"),
        health: text(shown, "/workload/health"),
        members: members
            .map(|member| Member {
                name: text(member, "/name"),
                node: text(member, "/node_name"),
                state: text(member, "/state"),
                health: text(member, "/health"),
            })
            .collect(),
        differences: list(diff, "/differences").map(difference).collect(),
        unknown: list(diff, "/unknown").map(|of| format!("{}: {}", text(of, "/what"), text(of, "/why"))).collect(),
    }
}

fn cluster(running: &RunningDemo) -> Kubectl {
    let user = ["auth", "whoami", "--output", "jsonpath={.status.userInfo.username}", "--request-timeout=5s"];
    let objects = ["get", "nodes,pods", "--output", "json", "--request-timeout=5s"];
    let seen = running.kubectl(&user).and_then(|user| {
        let objects = running.kubectl(&objects)?;
        Ok((user, serde_json::from_str::<Value>(&objects).context("kubectl printed no JSON")?))
    });
    match seen {
        Ok((user, objects)) => Kubectl::Cluster(parsed(user, &objects)),
        Err(error) => Kubectl::NoAnswer(format!("{error:#}").lines().last().unwrap_or_default().to_owned()),
    }
}

/// Reads a list of KubeNodes and pods.
fn parsed(user: String, objects: &Value) -> Cluster {
    let of_kind = |kind: &'static str| list(objects, "/items").filter(move |object| text(object, "/kind") == kind);
    let is_ready = |object: &Value| {
        list(object, "/status/conditions")
            .any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True")
    };
    let nodes = of_kind("Node").map(|node| KubeNode {
        name: text(node, "/metadata/name"),
        ready: is_ready(node),
        schedulable: node.pointer("/spec/unschedulable").and_then(Value::as_bool) != Some(true),
        label: node.pointer(&format!("/metadata/labels/{LABEL}")).and_then(Value::as_str).map(str::to_owned),
    });
    let pods = of_kind("Pod").filter(|pod| work::is_ours(&text(pod, "/metadata/labels/app"))).map(|pod| Pod {
        name: text(pod, "/metadata/name"),
        app: text(pod, "/metadata/labels/app"),
        node: text(pod, "/spec/nodeName"),
        ready: is_ready(pod) && pod.pointer("/metadata/deletionTimestamp").is_none(),
    });
    Cluster { user, nodes: nodes.collect(), pods: pods.collect() }
}

fn machine(running: &RunningDemo, expected: &Expected, node: &str, processes: &[String]) -> anyhow::Result<Machine> {
    let root = running.root(node);
    let programs = PROGRAMS.map(|program| root.join(program).into_string());
    let is_ours = |command: &&String| programs.iter().any(|program| command.contains(program.as_str()));
    let mut machine = Machine {
        node: node.to_owned(),
        config: std::fs::read_to_string(root.join(CONFIG)).ok(),
        processes: processes.iter().filter(is_ours).map(|command| first_words(command)).collect(),
        paths: REMOVED_PATHS
            .iter()
            .filter(|path| exists(root.join(path).as_std_path()))
            .map(|&path| path.to_owned())
            .collect(),
        ..Machine::default()
    };
    if let Some(role) = expected.role(node) {
        machine.unit = systemctl(running, node, "is-active", role)?;
        machine.boot = systemctl(running, node, "is-enabled", role)?;
    }
    Ok(machine)
}

/// Returns the state that `systemctl` prints, also if its exit status is not 0.
fn systemctl(running: &RunningDemo, node: &str, verb: &str, role: Role) -> anyhow::Result<String> {
    let output = running.systemctl(node, &[verb, role.unit()])?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Also true for a link that leads nowhere.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Shortens a command line to its program and first argument.
fn first_words(command: &str) -> String {
    command.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Returns the items of a list; none if there is no list.
fn list<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn removed_members_are_left_out_and_differences_keep_their_field() {
        let shown = json!({
            "workload": { "lifecycle": "running", "health": "degraded" },
            "members": [
                { "name": "agent-1", "node_name": "demo-2", "state": "ready", "health": "healthy" },
                { "name": "agent-2", "node_name": "demo-3", "state": "removed", "health": "none" },
            ],
        });
        let diff = json!({
            "differences": [{ "member": "agent-1", "field": "cordon", "desired": "schedulable", "observed": "cordoned" }],
            "unknown": [{ "what": "its cluster", "why": "it is silent" }],
        });
        let api = api(&shown, &diff);
        assert_eq!((api.lifecycle.as_str(), api.health.as_str(), api.members.len()), ("running", "degraded", 1));
        assert_eq!(api.differences[0].field, "cordon");
        assert_eq!(api.differences[0].text, "agent-1 cordon: cordoned instead of schedulable");
        assert_eq!(api.unknown, ["its cluster: it is silent"]);
    }

    #[test]
    fn cluster_is_read_from_one_list_of_nodes_and_pods() {
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let pod = |name: &str, app: &str, deleted: bool| {
            let mut metadata = json!({ "name": name, "labels": { "app": app } });
            if deleted {
                metadata["deletionTimestamp"] = json!("2026-07-01T08:00:00Z");
            }
            json!({ "kind": "Pod", "metadata": metadata, "spec": { "nodeName": "demo-1" }, "status": { "conditions": ready } })
        };
        let objects = json!({ "items": [
            { "kind": "Node", "metadata": { "name": "demo-1", "labels": { "rack": "b12" } }, "status": { "conditions": ready } },
            { "kind": "Node", "metadata": { "name": "demo-2" }, "spec": { "unschedulable": true } },
            pod("web-1", work::WEB, false), pod("web-2", work::WEB, true), pod("other", "other", false),
        ] });
        let cluster = parsed("eve".to_owned(), &objects);
        let nodes: Vec<_> = cluster
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node.ready, node.schedulable, node.label.as_deref()))
            .collect();
        assert_eq!(nodes, [("demo-1", true, true, Some("b12")), ("demo-2", false, false, None)]);
        let pods: Vec<_> = cluster.pods.iter().map(|pod| (pod.name.as_str(), pod.ready)).collect();
        assert_eq!(pods, [("web-1", true), ("web-2", false)]);
    }
}
