//! `lab up`: makes a lab and waits until every node has booted.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
    time::Instant,
};

use anyhow::{Context, bail, ensure};

use super::{
    cgroups,
    control::Power,
    dns,
    kind::{self, Kind, Nspawn},
    name::NodeName,
    network,
    node::Node,
    packages, place,
    plan::Plan,
    probe,
    refusal::Refusal,
    remains,
    resource::Resource,
    state::{Journal, Shape, State},
    supervisor,
};
use crate::shell;

/// Largest number of nodes: as many as an ordinary machine carries with a kubelet on each.
pub(super) const NODES_MAX: u8 = 8;

/// Prefix of the line that reports that a node boots.
pub(super) const BOOTING: &str = "booting";

/// Runs the command; the caller holds the lab's lock.
pub(super) fn run(nodes: u8) -> anyhow::Result<()> {
    let names: Vec<NodeName> = (1..=nodes).map(NodeName::numbered).collect();
    if let Some(state) = State::read()? {
        return start_existing(&state, &names);
    }
    packages::ensure()?;
    let remains = remains::find()?;
    if !remains.is_empty() {
        return Err(Refusal::Remains(remains.iter().map(Resource::describe).collect::<Vec<_>>().join("; ")).into());
    }
    for finding in probe::machine()? {
        println!("  {}", finding.line());
    }
    let shape = Shape { kind: Nspawn::NAME.to_owned(), nodes: names, subnet: network::free_subnet()? };
    let began = Instant::now();
    let state = make(&shape)?;
    for name in &shape.nodes {
        report(&Node::of(&state, name)?)?;
    }
    println!("  {} nodes on {} in {:.1} s", shape.nodes.len(), shape.subnet, began.elapsed().as_secs_f64());
    Ok(())
}

/// Handles an existing lab: accepts it if it has these nodes and is complete, refuses otherwise.
fn start_existing(state: &State, names: &[NodeName]) -> anyhow::Result<()> {
    ensure!(state.is_up, Refusal::Remains(format!("an incomplete lab of {}", state.shape.names())));
    if state.shape.nodes != names {
        let count = |count: usize| format!("{count} nodes");
        return Err(
            Refusal::OtherLab { existing: count(state.shape.nodes.len()), requested: count(names.len()) }.into()
        );
    }
    println!("  the lab is already up");
    for name in names {
        let node = Node::of(state, name)?;
        let before = node.condition()?;
        if before.power != Power::On {
            println!("  {name} is {}: starting it", before.describe());
            node.start()?;
        }
        report(&node)?;
    }
    Ok(())
}

fn make(shape: &Shape) -> anyhow::Result<State> {
    let mut journal = Journal::begin(shape)?;
    let state = State::read()?.context("the state file has no lab")?;
    let kind = kind::named(&shape.kind)?;
    let plans: Vec<Plan> = shape.nodes.iter().map(|name| Plan::of(&state, name)).collect::<Result<_, _>>()?;
    create_cgroups(&mut journal)?;
    network(shape, &mut journal)?;
    dns::serve(&plans, shape.subnet, &mut journal)?;
    for plan in &plans {
        create_node(kind.as_ref(), plan, &mut journal)?;
    }
    for plan in &plans {
        start(plan, &mut journal)?;
        println!("  {BOOTING} {}", plan.name);
    }
    for plan in &plans {
        Node::of(&state, &plan.name)?.await_boot_after(0)?;
    }
    journal.record_up()?;
    State::read_complete()
}

/// Creates the lab's cgroups before the first process that belongs in them.
fn create_cgroups(journal: &mut Journal) -> anyhow::Result<()> {
    journal.record(Resource::Tree(place::RUN.into()))?;
    journal.record(Resource::Mounts(place::RUN.into()))?;
    journal.record(Resource::Cgroup(place::CGROUP.to_owned()))?;
    for name in [place::SUPERVISORS, place::SERVICES] {
        cgroups::make(&place::group(name))?;
    }
    // If this process dies, `down` kills the processes that it started.
    journal.record(Resource::Processes(place::group(place::SERVICES)))?;
    cgroups::join(&place::group(place::SERVICES))?;
    Ok(())
}

fn network(shape: &Shape, journal: &mut Journal) -> anyhow::Result<()> {
    journal.record(Resource::Link(place::BRIDGE.to_owned()))?;
    network::make_bridge(&shape.subnet)?;
    for rule in network::firewall::needed()? {
        journal.record(Resource::Rule(rule.clone()))?;
        network::firewall::insert(&rule)?;
    }
    Ok(())
}

fn create_node(kind: &dyn Kind, plan: &Plan, journal: &mut Journal) -> anyhow::Result<()> {
    let run = place::run_of(&plan.name);
    fs::create_dir_all(&run).with_context(|| run.to_string())?;
    kind.create(plan, journal).with_context(|| format!("creating {}", plan.name))
}

/// Starts the node's supervisor, which boots the node; returns once the supervisor accepts requests.
fn start(plan: &Plan, journal: &mut Journal) -> anyhow::Result<()> {
    let supervisors = place::group(place::SUPERVISORS);
    journal.record(Resource::Supervisors(supervisors.clone()))?;
    journal.record(Resource::Processes(place::group(plan.name.as_str())))?;
    journal.record(Resource::Link(place::link_of(&plan.name)))?;
    let log = place::run_of(&plan.name).join("supervisor.log");
    let mut supervisor =
        cgroups::detached(&supervisors, &[&shell::own_program(), "lab", "supervise", plan.name.as_str()])?
            .env("PATH", packages::path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).with_context(|| log.to_string())?)
            .current_dir("/")
            .spawn()
            .context("starting a supervisor")?;
    let mut line = String::new();
    BufReader::new(supervisor.stdout.take().context("stdout is not piped")?).read_line(&mut line)?;
    if line.trim() != supervisor::LISTENING {
        let log = fs::read_to_string(&log).unwrap_or_default();
        bail!("the supervisor of {} ended with {}: {}", plan.name, supervisor.wait()?, log.trim());
    }
    Ok(())
}

/// Reports how a node booted and which of its units failed.
fn report(node: &Node) -> anyhow::Result<()> {
    let condition = node.condition()?;
    let booted = condition.boot_ms.map_or_else(String::new, |ms| format!("booted in {:.1} s", ms as f64 / 1_000.0));
    let state = node.run(&["systemctl", "is-system-running", "--wait"])?;
    let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
    println!(
        "  {:<9} {:<14} {:<30} {state}, {booted}",
        node.name().as_str(),
        node.address().to_string(),
        node.dns_name()
    );
    if state != "running" {
        let failed = node.capture(&["systemctl", "list-units", "--failed", "--plain", "--no-legend"])?;
        println!("{}", failed.lines().map(|line| format!("            {line}")).collect::<Vec<_>>().join("\n"));
    }
    Ok(())
}
