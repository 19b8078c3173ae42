//! The main scenario: three machines are enrolled by one command each; a cluster is deployed, used as a tenant uses it, extended, rebooted
//! in part, taken through the rest of its [`life`] and removed without residue; one machine is returned.
//!
//! Guarantees: all requests go through the platform's command line and kubectl; the platform's statements about a machine are compared with
//! the machine's own tools.
//!
//! Deliberately absent: knowledge of the release (only its import differs) and faults.

mod handback;
pub(super) mod life;
mod planted;
mod prober;
mod reboot;
mod removal;
mod usage;

use anyhow::{Context, bail, ensure};
use gpuaas_api_types::{Allocation, WorkloadDetail};
use serde_json::Value;

use super::{
    check::check,
    cluster::Cluster,
    control_plane::ControlPlane,
    listing::MachineListing,
    parts::{Part, Prepared},
};
use crate::node::{Lab, Node};
use life::Life;
use usage::Answers;

/// Name of the workload.
const WORKLOAD: &str = "train";

/// Runs the scenario.
pub(super) fn run_scenario(lab: &Lab, given: &Prepared) -> anyhow::Result<()> {
    let nodes = lab.nodes()?;
    let [server, agent, third] = nodes.as_slice() else { bail!("the lab does not have three nodes") };
    let answers = Answers::of_release(given.path(Part::Release)?)?;
    let Machines { control_plane, before, allocations } = prepare(lab, given, &nodes)?;

    check("a server and an agent are deployed, the agent by the server's registration name", || {
        deploy(&control_plane, server, agent)
    })?;
    let cluster = control_plane.cluster(WORKLOAD)?;
    check("both are Ready, each with its own kubelet", || check_ready(&control_plane, &cluster, &[server, agent]))?;
    check("the supervisor listens on the server's address and on its loopback address", || check_supervisor(server))?;
    usage::run_checks(&cluster, &answers, &[server, agent])?;
    check("an agent is added, and no request fails meanwhile", || {
        usage::add_agent_under_load(&control_plane, &cluster, &answers, &[server, agent, third])
    })?;
    check("all three are Ready", || check_ready(&control_plane, &cluster, &[server, agent, third]))?;
    check("pods on all three answer each other by address and by the service's name", || {
        usage::answer_each_other(&cluster, &[server, agent, third])
    })?;
    check("a machine is rebooted and comes back Ready, with its pods", || {
        reboot::reboot_and_check(&control_plane, &cluster, agent)
    })?;
    check("pods on all three still answer each other", || usage::answer_each_other(&cluster, &[server, agent, third]))?;

    // Here, because these machines have booted and have the cluster already; `lab test life` runs it alone.
    let (steady, moved) = (agent, third);
    let life = Life { control_plane: &control_plane, cluster: &cluster, server, steady, moved, sabotage: None };
    life::run_checks(&life, &before)?;

    removal::run_checks(&control_plane, &nodes, &before, agent)?;
    let allocation = allocations.iter().find(|allocation| allocation.node_name == agent.name().as_str());
    handback::run_checks(&control_plane, agent, allocation.context("the node has no allocation")?)
}

/// Machines that are enrolled and allocated to the project, with nothing deployed on them, and their control plane.
struct Machines {
    control_plane: ControlPlane,
    /// What each machine contains.
    before: Vec<MachineListing>,
    allocations: Vec<Allocation>,
}

/// Starts a control plane with a release, and enrolls and allocates the nodes.
fn prepare(lab: &Lab, given: &Prepared, nodes: &[Node]) -> anyhow::Result<Machines> {
    let control_plane = check("a control plane serves next to the lab", || ControlPlane::start(lab, given))?;
    check("a release is imported", || control_plane.import(given.path(Part::Release)?))?;
    for node in nodes {
        check(&format!("{} is enrolled by the command that its registration printed", node.name()), || {
            control_plane.register_and_enroll(node)
        })?;
    }
    let before = check("the content of every machine is listed by its own tools", || {
        nodes.iter().map(removal::list_content).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let allocations = check("all three are allocated to the project, and nothing prevents a deployment", || {
        nodes
            .iter()
            .map(|node| check_fit(control_plane.allocate(node.name().as_str())?))
            .collect::<anyhow::Result<Vec<Allocation>>>()
    })?;
    Ok(Machines { control_plane, before, allocations })
}

/// Checks that nothing prevents a deployment onto the allocation.
fn check_fit(allocation: Allocation) -> anyhow::Result<Allocation> {
    ensure!(allocation.detail.is_none(), "{}: {:?}", allocation.node_name, allocation.detail);
    Ok(allocation)
}

/// Uses a name that the lab's DNS resolves as the registration address: the agent finds the server under it.
fn deploy(control_plane: &ControlPlane, server: &Node, agent: &Node) -> anyhow::Result<()> {
    let config = serde_json::json!({ "registration_address": server.dns_name() }).to_string();
    let placed = ["--name", WORKLOAD, "--server", server.name().as_str(), "--agent", agent.name().as_str()];
    control_plane.run_operation(&[&["workload", "deploy", "rke2", "--config", &config][..], &placed].concat())?;
    let written = agent.capture(&["cat", "/etc/rancher/rke2/config.yaml"])?;
    let line = format!("server: 'https://{}:9345'", server.dns_name());
    ensure!(written.lines().any(|of| of == line), "the agent's configuration does not contain {line}:\n{written}");
    Ok(())
}

/// Checks that exactly these nodes are in the cluster and Ready, each with its machine's address and a kubelet on that machine.
fn check_ready(control_plane: &ControlPlane, cluster: &Cluster, nodes: &[&Node]) -> anyhow::Result<()> {
    let detail: WorkloadDetail = control_plane.gpuaas(&["workload", "show", WORKLOAD])?;
    let version = &detail.workload.version;
    let list: Value = cluster.json(&["get", "nodes"])?;
    let kube_nodes = list["items"].as_array().context("kubectl lists no nodes")?;
    ensure!(kube_nodes.len() == nodes.len(), "the cluster has {} nodes, not {}", kube_nodes.len(), nodes.len());
    for node in nodes {
        let found = kube_nodes.iter().find(|kube_node| kube_node["metadata"]["name"] == node.name().as_str());
        let kube_node = found.with_context(|| format!("{} is not a node of the cluster", node.name()))?;
        check_kube_node(kube_node, version, node)
            .with_context(|| format!("{}: {}", node.name(), kube_node["status"]))?;
    }
    Ok(())
}

fn check_kube_node(kube_node: &Value, version: &str, node: &Node) -> anyhow::Result<()> {
    let listed = |name: &str| kube_node["status"][name].as_array().cloned().unwrap_or_default();
    let is_ready = listed("conditions").iter().any(|of| of["type"] == "Ready" && of["status"] == "True");
    ensure!(is_ready, "the KubeNode is not Ready");
    let address = node.address().to_string();
    let has_address = listed("addresses").iter().any(|of| of["type"] == "InternalIP" && of["address"] == address);
    ensure!(has_address, "the KubeNode's address is not {address}");
    let info = &kube_node["status"]["nodeInfo"];
    let runtime = info["containerRuntimeVersion"].as_str().unwrap_or_default();
    ensure!(runtime.starts_with("containerd://"), "the container runtime is {runtime}");
    ensure!(info["kubeletVersion"] == version, "the kubelet is {}, but {version} was deployed", info["kubeletVersion"]);
    let machine = node.capture(&["cat", "/etc/machine-id"])?;
    ensure!(info["machineID"] == machine.as_str(), "the machine ID is {}, not {machine}", info["machineID"]);
    let listens =
        node.capture(&["ss", "--no-header", "--listening", "--numeric", "--tcp", "--processes", "sport = :10250"])?;
    ensure!(listens.contains("\"kubelet\""), "no kubelet listens on port 10250: {listens}\n{}", explain_kubelet(node));
    // The kubelet's read-only port, which needs no credentials; RKE2 keeps it closed.
    let open = node_listeners(node, 10_255)?;
    ensure!(open.is_empty(), "the kubelet answers without credentials: {open}");
    Ok(())
}

/// Returns what the kubelet and RKE2 logged last: a kubelet that exited says why there alone.
fn explain_kubelet(node: &Node) -> String {
    let log = ["tail", "--lines=8", "/var/lib/rancher/rke2/agent/logs/kubelet.log"];
    let journal = ["journalctl", "--no-pager", "--lines=12", "--unit=rke2-server", "--unit=rke2-agent"];
    [&log[..], &journal].map(|command| node.capture(command).unwrap_or_else(|error| format!("{error:#}"))).join("\n")
}

/// Checks that the supervisor also listens on the server's loopback address, which RKE2's own commands use.
fn check_supervisor(server: &Node) -> anyhow::Result<()> {
    let listens = node_listeners(server, 9_345)?;
    for address in [server.address().to_string(), "127.0.0.1".to_owned()] {
        ensure!(listens.contains(&format!("{address}:9345")), "nothing listens at {address}: {listens}");
    }
    Ok(())
}

fn node_listeners(node: &Node, port: u16) -> anyhow::Result<String> {
    node.capture(&["ss", "--no-header", "--listening", "--numeric", "--tcp", &format!("sport = :{port}")])
}
