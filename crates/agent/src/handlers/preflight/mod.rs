//! `host.preflight`: tells whether an app could run here, before anything is changed. Findings are its result, not its failure.
//!
//! First all is looked at, then each check judges what was seen: pure, so that a test gives it any host. A check that has nothing to go by is
//! not counted: neither as passed nor as failed.
//!
//! Deliberately absent: what an app wants (its parameters say that).

mod containers;
mod kernel;
mod leftovers;
mod network;
mod report;
mod room;
mod units;

use std::collections::BTreeSet;

use gpuaas_host::{HostError, Listener, survey::Tree};
use gpuaas_wire::task::{HostFacts, HostWants, MachineFacts, Preflight, PreflightReport, TaskFailure};

use super::{inspect, mounts};
use crate::context::{Context, host_failed};
use report::Report;

/// Services whose running says something about a host.
const SERVICES: [&str; 5] = [
    "firewalld.service",
    "NetworkManager.service",
    "nm-cloud-setup.service",
    "nm-cloud-setup.timer",
    "fapolicyd.service",
];

/// Looks and judges.
pub(crate) async fn run(task: Preflight, context: Context) -> Result<PreflightReport, TaskFailure> {
    let facts = context.host.facts().await.map_err(host_failed)?;
    let tree = context.host.tree();
    let machine = inspect::machine_facts(&context, &tree, inspect::data_dir(Some(&task))).await;
    look(&task, &context, &facts, &machine).await
}

/// Looks and judges, where it is known already what the machine is made of.
pub(crate) async fn look(
    task: &Preflight,
    context: &Context,
    facts: &HostFacts,
    machine: &MachineFacts,
) -> Result<PreflightReport, TaskFailure> {
    let look = Look::at(task, context, facts, machine).await.map_err(host_failed)?;
    Ok(judged(&look))
}

/// All that checks judge.
struct Look<'a> {
    task: &'a Preflight,
    wants: HostWants,
    facts: &'a HostFacts,
    machine: &'a MachineFacts,
    tree: Tree,
    /// TCP ports in question on which something listens.
    taken: Vec<u16>,
    /// Every listener of the node's own.
    listeners: Vec<Listener>,
    /// Mounts where the app mounts.
    mounts: Vec<String>,
    links: Vec<String>,
    /// Rules of an earlier cluster; or why they could not be listed.
    rules: Result<Option<Vec<String>>, String>,
    /// Those of [`SERVICES`] that run.
    active: BTreeSet<&'static str>,
}

impl<'a> Look<'a> {
    async fn at(
        task: &'a Preflight,
        context: &Context,
        facts: &'a HostFacts,
        machine: &'a MachineFacts,
    ) -> Result<Self, HostError> {
        let host = &context.host;
        let wants = task.wants.clone().unwrap_or_default();
        let mut active = BTreeSet::new();
        for service in SERVICES.into_iter().filter(|_| wants.containers) {
            if host.unit(service).await?.is_some_and(|status| status.active == "active") {
                active.insert(service);
            }
        }
        let rules = match wants.firewall_marks.is_empty() {
            true => Ok(Some(Vec::new())),
            // The filter's programs fail in odd ways on kernels without one of its kinds: that is a finding, and no failure.
            false => host.firewall_rules(&wants.firewall_marks).await.map_err(|error| error.to_string()),
        };
        Ok(Self {
            task,
            facts,
            machine,
            tree: host.tree(),
            taken: host.listening(&task.ports).await?,
            listeners: if looks_at_ports(task, &wants) { host.listeners().await? } else { Vec::new() },
            mounts: mounts::under(host, &wants.mount_prefixes).await?,
            links: if wants.link_prefixes.is_empty() { Vec::new() } else { host.links().await? },
            rules,
            active,
            wants,
        })
    }

    /// Who wants it, for sentences.
    fn who(&self) -> &str {
        if self.wants.who.is_empty() { "the app" } else { &self.wants.who }
    }

    /// Whether the node has this for itself: a sandbox shares the machine's and is not judged by it.
    fn has_own(&self, path: &str) -> bool {
        !self.tree.is_sandbox() || self.tree.own_exists(path)
    }

    fn runs(&self, service: &str) -> bool {
        self.active.contains(service)
    }
}

fn looks_at_ports(task: &Preflight, wants: &HostWants) -> bool {
    !task.ports.is_empty() || !wants.udp_ports.is_empty()
}

fn judged(look: &Look<'_>) -> PreflightReport {
    let mut report = Report::default();
    leftovers::judge(look, &mut report);
    room::judge(look, &mut report);
    units::judge(look, &mut report);
    network::judge(look, &mut report);
    if look.wants.containers {
        kernel::judge(look, &mut report);
        containers::judge(look, &mut report);
    }
    report.done()
}

#[cfg(test)]
mod tests;
