//! `host.preflight`: reports whether an app can run here, before anything is changed. Findings are the task's result, not its failure.
//!
//! The task first collects all observations; then each check judges them as a pure function, so that tests can present any host. A check
//! without the observations that it needs counts neither as passed nor as failed.
//!
//! Deliberately absent: the requirements of an app, which the task's parameters state.

mod containers;
mod kernel;
mod leftovers;
mod network;
mod report;
mod resources;
mod units;

use std::collections::BTreeSet;

use gpuaas_handler::{Context, host_failed};
use gpuaas_host::{HostError, Listener, survey::Tree};
use gpuaas_wire::task::{HostFacts, HostRequirements, MachineFacts, Preflight, PreflightReport, TaskFailure};

use super::{machine, mounts};
use report::Report;

/// Services that matter to the checks if they are active.
const SERVICES: [&str; 5] = [
    "firewalld.service",
    "NetworkManager.service",
    "nm-cloud-setup.service",
    "nm-cloud-setup.timer",
    "fapolicyd.service",
];

/// Collects the observations and runs the checks.
pub(crate) async fn run(task: Preflight, context: Context) -> Result<PreflightReport, TaskFailure> {
    let facts = context.host.inventory().facts().await.map_err(host_failed)?;
    let tree = context.host.inventory().tree();
    let machine = machine::machine_facts(&context, &tree, machine::data_dir(Some(&task))).await;
    check_host(&task, &context, &facts, &machine).await
}

/// Does the same for a caller that already has the facts of the machine.
pub(crate) async fn check_host(
    task: &Preflight,
    context: &Context,
    facts: &HostFacts,
    machine: &MachineFacts,
) -> Result<PreflightReport, TaskFailure> {
    let snapshot = HostSnapshot::take(task, context, facts, machine).await.map_err(host_failed)?;
    Ok(run_checks(&snapshot))
}

/// All observations that the checks judge.
struct HostSnapshot<'a> {
    task: &'a Preflight,
    wants: HostRequirements,
    facts: &'a HostFacts,
    machine: &'a MachineFacts,
    tree: Tree,
    /// TCP ports of the app on which something listens.
    taken: Vec<u16>,
    /// All listeners of the node itself.
    listeners: Vec<Listener>,
    /// Mounts at or below the app's mount prefixes.
    mounts: Vec<String>,
    /// Those of the paths that must be absent at which an empty disk is mounted.
    empty_disks: BTreeSet<String>,
    links: Vec<String>,
    /// Firewall rules of an earlier cluster, or the reason why they cannot be listed.
    rules: Result<Option<Vec<String>>, String>,
    /// Those of [`SERVICES`] that are active.
    active: BTreeSet<&'static str>,
}

impl<'a> HostSnapshot<'a> {
    async fn take(
        task: &'a Preflight,
        context: &Context,
        facts: &'a HostFacts,
        machine: &'a MachineFacts,
    ) -> Result<Self, HostError> {
        let host = &context.host;
        let wants = task.wants.clone().unwrap_or_default();
        let mut active = BTreeSet::new();
        for service in SERVICES.into_iter().filter(|_| wants.containers) {
            if host.units().unit(service).await?.is_some_and(|status| status.active == "active") {
                active.insert(service);
            }
        }
        let rules = match wants.firewall_marks.is_empty() {
            true => Ok(Some(Vec::new())),
            // The programs of the packet filter fail in various ways on kernels without one of its backends: that is a finding, not a
            // failure.
            false => host.inventory().firewall_rules(&wants.firewall_marks).await.map_err(|error| error.to_string()),
        };
        Ok(Self {
            task,
            facts,
            machine,
            tree: host.inventory().tree(),
            taken: host.inventory().listening(&task.ports).await?,
            listeners: if looks_at_ports(task, &wants) { host.inventory().listeners().await? } else { Vec::new() },
            mounts: mounts::under(host, &wants.mount_prefixes).await?,
            empty_disks: mounts::empty_disks(host, &task.absent_paths).await?,
            links: if wants.link_prefixes.is_empty() { Vec::new() } else { host.inventory().links().await? },
            rules,
            active,
            wants,
        })
    }

    /// Returns the name of the app, for sentences.
    fn who(&self) -> &str {
        if self.wants.who.is_empty() { "the app" } else { &self.wants.who }
    }

    /// Returns true if the node has this file for itself: a sandbox shares that of its machine and is not judged by it.
    fn has_own(&self, path: &str) -> bool {
        !self.tree.is_sandbox() || self.tree.own_exists(path)
    }

    fn runs(&self, service: &str) -> bool {
        self.active.contains(service)
    }
}

fn looks_at_ports(task: &Preflight, wants: &HostRequirements) -> bool {
    !task.ports.is_empty() || !wants.udp_ports.is_empty()
}

fn run_checks(snapshot: &HostSnapshot<'_>) -> PreflightReport {
    let mut report = Report::default();
    leftovers::check(snapshot, &mut report);
    resources::check(snapshot, &mut report);
    units::check(snapshot, &mut report);
    network::check(snapshot, &mut report);
    if snapshot.wants.containers {
        kernel::check(snapshot, &mut report);
        containers::check(snapshot, &mut report);
    }
    report.finish()
}

#[cfg(test)]
mod tests;
