//! Nodes with a wrong identity: another machine behind a known node, duplicate host names, invalid host names.

use anyhow::{Context, ensure};
use jiff::Timestamp;
use serde_json::Value;

use super::{PATIENCE, said::says, table::Told, world::World};
use crate::lab::{node::Node, test::following::Stream};

/// A host name that is no DNS label.
const UNDERSCORED: &str = "gpu_07";
/// A host name that two machines share.
const SHARED: &str = "twin";

/// A known node comes back as another machine.
pub(super) fn another_machine_id(world: &mut World<'_>) -> anyhow::Result<Told> {
    let member = world.enrolled("moved")?;
    let id = |node: &Node| says(node, "cat /etc/machine-id");
    let before = id(&member.node)?;
    says(&member.node, "cat /proc/sys/kernel/random/uuid | tr -d - >/etc/machine-id")?;
    member.node.reboot()?;
    let now = id(&member.node)?;
    ensure!(before != now && now.len() == 32, "the machine's id is {now}");
    let change = world.platform.until("another machine is told", PATIENCE, || {
        let shown = world.platform.shown(&member.name)?;
        Ok((shown.connectivity == "connected").then_some(shown.machine_changed).flatten())
    })?;
    ensure!(change.before == before, "it was {}, not {before}", change.before);
    let events = world.platform.events(Stream::Platform)?;
    let told = events.iter().rev().find(|event| event.kind == "node.machine_changed").context("no event tells it")?;
    let said = |name: &str| told.data.get(name).and_then(Value::as_str).unwrap_or_default();
    ensure!((said("name"), said("before"), said("now")) == (&*member.name, &*before, &*now), "{}", told.data);
    // The node is inspected again: findings about the previous machine do not apply to this one.
    let inspected = world.platform.until("it is inspected anew", PATIENCE, || {
        let shown = world.platform.shown(&member.name)?;
        Ok(shown.inspected_at.filter(|at| is_later(at, &change.at)))
    })?;
    Told::new(
        format!(
            "node.machine_changed; {} is {} and was inspected anew at {inspected}",
            member.name,
            world.platform.shown(&member.name)?.state
        ),
        [format!("/etc/machine-id: {before}, then {now}")],
    )
}

/// Kubernetes does not accept the machine's host name: the KubeNode takes the node's name instead, and runs.
pub(super) fn underscore(world: &mut World<'_>) -> anyhow::Result<Told> {
    let node = world.machine()?;
    name(&node, UNDERSCORED)?;
    let member = world.allocated_on(node, "underscore")?;
    let findings =
        world.platform.shown(&member.name)?.preflight.map(|preflight| preflight.findings).unwrap_or_default();
    let finding =
        findings.iter().find(|finding| finding.check == "host_name").context("the name is not found fault with")?;
    let workload = member.name.clone();
    world.platform.succeeds(&world.deploy(&workload, &member, &[])?)?;
    let ready = ready(world, &workload)?;
    ensure!(ready == [member.name.as_str()], "these KubeNodes are Ready: {ready:?}");
    let hostname = says(&member.node, "hostname")?;
    ensure!(hostname == UNDERSCORED, "the machine's name is {hostname}");
    let outcome = format!("KubeNode {} is Ready; host_name: {}", member.name, finding.fix);
    world.leave_running(workload, member);
    Told::new(outcome, [format!("hostname: {hostname}")])
}

/// Two machines share a host name: each has its own KubeNode.
pub(super) fn one_name_twice(world: &mut World<'_>) -> anyhow::Result<Told> {
    let (one, other) = (world.machine()?, world.machine()?);
    for node in [&one, &other] {
        name(node, SHARED)?;
    }
    let server = world.allocated_on(one, "first-twin")?;
    let agent = world.allocated_on(other, "second-twin")?;
    let workload = server.name.clone();
    world.platform.succeeds(&world.deploy(&workload, &server, &[&agent])?)?;
    let ready = ready(world, &workload)?;
    ensure!(ready == [server.name.as_str(), agent.name.as_str()], "these KubeNodes are Ready: {ready:?}");
    let named = |node: &Node| {
        let hostname = says(node, "hostname")?;
        ensure!(hostname == SHARED, "the name of {} is {hostname}", node.address());
        Ok(format!("{}: {hostname}", node.address()))
    };
    Told::new(
        format!("KubeNodes {} are Ready", ready.join(" and ")),
        [format!("hostname: {}, {}", named(&server.node)?, named(&agent.node)?)],
    )
}

/// Names of the KubeNodes that are Ready.
fn ready(world: &World<'_>, workload: &str) -> anyhow::Result<Vec<String>> {
    let list: Value = world.platform.cluster(workload)?.json(&["get", "nodes", "--sort-by=.metadata.name"])?;
    let nodes = list.get("items").and_then(Value::as_array).context("a list of nodes")?;
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
fn name(node: &Node, name: &str) -> anyhow::Result<()> {
    /// Number of the call on x86-64, the architecture of the lab.
    const SETHOSTNAME: u32 = 170;
    says(
        node,
        &format!(
            "perl -e 'my $name = \"{name}\"; exit(syscall({SETHOSTNAME}, $name, length $name) != 0)' \
             && echo {name} >/etc/hostname \
             && sed -i 's/^127.0.1.1.*/127.0.1.1 {name}/' /etc/hosts"
        ),
    )
    .map(drop)
}
