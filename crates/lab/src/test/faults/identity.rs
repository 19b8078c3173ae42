//! Nodes with a wrong identity: another machine behind a known node, duplicate host names, invalid host names.

use anyhow::{Context, ensure};
use jiff::Timestamp;
use serde_json::Value;

use super::{WAIT_MAX, command_output::capture_script, environment::Environment, table::CellResult};
use crate::{node::Node, test::following::Stream};

/// A host name that is no DNS label.
const UNDERSCORED: &str = "gpu_07";
/// A host name that two machines share.
const SHARED: &str = "twin";

/// A known node comes back as another machine.
pub(super) fn another_machine_id(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let member = environment.enrolled("moved")?;
    let id = |node: &Node| capture_script(node, "cat /etc/machine-id");
    let before = id(&member.node)?;
    capture_script(&member.node, "cat /proc/sys/kernel/random/uuid | tr -d - >/etc/machine-id")?;
    member.node.reboot()?;
    let now = id(&member.node)?;
    ensure!(before != now && now.len() == 32, "the machine ID is {now}, not another valid one");
    let change = environment.platform.until("the changed machine is reported", WAIT_MAX, || {
        let shown = environment.platform.show_node(&member.name)?;
        Ok((shown.connectivity == "connected").then_some(shown.machine_changed).flatten())
    })?;
    ensure!(change.before == before, "the reported earlier ID is {}, not {before}", change.before);
    let events = environment.platform.events(Stream::Platform)?;
    let event = events
        .iter()
        .rev()
        .find(|event| event.kind == "node.machine_changed")
        .context("no event reports the changed machine")?;
    let field = |name: &str| event.data.get(name).and_then(Value::as_str).unwrap_or_default();
    ensure!(
        (field("name"), field("before"), field("now")) == (&*member.name, &*before, &*now),
        "other data: {}",
        event.data
    );
    // The node is inspected again: findings about the previous machine do not apply to this one.
    let inspected = environment.platform.until("the node is inspected again", WAIT_MAX, || {
        let shown = environment.platform.show_node(&member.name)?;
        Ok(shown.inspected_at.filter(|at| is_later(at, &change.at)))
    })?;
    CellResult::new(
        format!(
            "node.machine_changed; {} is {} and was inspected again at {inspected}",
            member.name,
            environment.platform.show_node(&member.name)?.state
        ),
        [format!("/etc/machine-id: {before}, then {now}")],
    )
}

/// Kubernetes does not accept the machine's host name: the KubeNode takes the node's name instead, and runs.
pub(super) fn underscore(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let node = environment.machine()?;
    set_host_name(&node, UNDERSCORED)?;
    let member = environment.allocated_on(node, "underscore")?;
    let findings =
        environment.platform.show_node(&member.name)?.preflight.map(|preflight| preflight.findings).unwrap_or_default();
    let finding =
        findings.iter().find(|finding| finding.check == "host_name").context("no finding concerns the host name")?;
    let workload = member.name.clone();
    environment.platform.wait_success(&environment.deploy(&workload, &member, &[])?)?;
    let ready = ready(environment, &workload)?;
    ensure!(ready == [member.name.as_str()], "other KubeNodes are Ready: {ready:?}");
    let hostname = capture_script(&member.node, "hostname")?;
    ensure!(hostname == UNDERSCORED, "the host name is {hostname}");
    let outcome = format!("KubeNode {} is Ready; host_name: {}", member.name, finding.fix);
    environment.leave_running(workload, member);
    CellResult::new(outcome, [format!("hostname: {hostname}")])
}

/// Two machines share a host name: each has its own KubeNode.
pub(super) fn shared_host_name(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let (one, other) = (environment.machine()?, environment.machine()?);
    for node in [&one, &other] {
        set_host_name(node, SHARED)?;
    }
    let server = environment.allocated_on(one, "first-twin")?;
    let agent = environment.allocated_on(other, "second-twin")?;
    let workload = server.name.clone();
    environment.platform.wait_success(&environment.deploy(&workload, &server, &[&agent])?)?;
    let ready = ready(environment, &workload)?;
    ensure!(ready == [server.name.as_str(), agent.name.as_str()], "other KubeNodes are Ready: {ready:?}");
    let named = |node: &Node| {
        let hostname = capture_script(node, "hostname")?;
        ensure!(hostname == SHARED, "the host name of {} is {hostname}", node.address());
        Ok(format!("{}: {hostname}", node.address()))
    };
    CellResult::new(
        format!("KubeNodes {} are Ready", ready.join(" and ")),
        [format!("hostname: {}, {}", named(&server.node)?, named(&agent.node)?)],
    )
}

/// Names of the KubeNodes that are Ready.
fn ready(environment: &Environment, workload: &str) -> anyhow::Result<Vec<String>> {
    let list: Value = environment.platform.cluster(workload)?.json(&["get", "nodes", "--sort-by=.metadata.name"])?;
    let nodes = list.get("items").and_then(Value::as_array).context("kubectl returned no list of nodes")?;
    let is_ready = |node: &&Value| {
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    let name = |node: &Value| node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(nodes.iter().filter(is_ready).map(name).collect())
}

/// Reports whether `one` is later than `other`; false if either is no timestamp.
fn is_later(one: &str, other: &str) -> bool {
    let moment = |text: &str| text.parse::<Timestamp>().ok();
    moment(one).zip(moment(other)).is_some_and(|(one, other)| one > other)
}

/// Sets the host name by system call: `hostname` is stricter than the kernel, systemd and other tools.
fn set_host_name(node: &Node, name: &str) -> anyhow::Result<()> {
    /// Number of the call on x86-64, the architecture of the lab.
    const SETHOSTNAME: u32 = 170;
    capture_script(
        node,
        &format!(
            "perl -e 'my $name = \"{name}\"; exit(syscall({SETHOSTNAME}, $name, length $name) != 0)' \
             && echo {name} >/etc/hostname \
             && sed -i 's/^127.0.1.1.*/127.0.1.1 {name}/' /etc/hosts"
        ),
    )
    .map(drop)
}
