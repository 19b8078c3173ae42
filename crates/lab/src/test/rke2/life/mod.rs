//! The life of a running workload: a drain that a budget first blocks and then allows, an agent removed, another one replaced and added again, a
//! stop and a start, the repair of a broken agent, and the decommission. Meanwhile a Deployment of the tenant receives requests without a pause.
//!
//! Guarantees: no request fails while members are drained, removed, replaced and added; for a stop and a repair, which interrupt, the scenario prints
//! how long. What the platform reports is compared with kubectl and with the machines' own tools.
//!
//! Deliberately absent: refusals, which need no booted machine.

mod drain;
mod membership;
mod repair;
mod service;

use anyhow::{Context, bail, ensure};
use gpuaas_api_types::{Member, WorkloadDetail};

use super::{
    Machines, WORKLOAD, check_ready, prepare,
    prober::{ProbeResults, Prober},
    removal,
    usage::{self, Answers},
};
use crate::{
    node::{Lab, Node},
    test::{
        check::check,
        cluster::Cluster,
        control_plane::ControlPlane,
        listing::MachineListing,
        parts::{Part, Prepared},
    },
};

/// Name of the scenario.
pub(crate) const NAME: &str = "life";

/// States that `--sabotage` breaks, each so that one check fails: the requests' path; the budget; its relaxation; the lifted cordon; the
/// machines of the removed and of the replaced agent; the stopped service; the pods after the start; the repaired service; the decommissioned
/// machines.
const SABOTAGES: [&str; 10] = [
    ANSWERS,
    drain::BUDGET_IN_FORCE,
    drain::BUDGET_RELAXED,
    drain::CORDON_LIFTED,
    membership::MACHINE_CLEAN,
    membership::REPLACED_CLEAN,
    service::STOPPED,
    service::PODS_BACK,
    repair::REPAIRED,
    DECOMMISSIONED,
];
const ANSWERS: &str = "answers";
const DECOMMISSIONED: &str = "decommissioned";

/// Checks that `--sabotage` can break a state of this name.
pub(crate) fn check_sabotage(name: &str) -> anyhow::Result<()> {
    ensure!(SABOTAGES.contains(&name), "unknown sabotage {name}; there are {}", SABOTAGES.join(", "));
    Ok(())
}

/// A cluster of three nodes with the tenant's Deployment.
pub(super) struct Life<'a> {
    pub(super) control_plane: &'a ControlPlane,
    pub(super) cluster: &'a Cluster,
    pub(super) server: &'a Node,
    /// An agent that is replaced once and added again, and otherwise stays as it is.
    pub(super) steady: &'a Node,
    /// The agent that is drained and removed, takes the place of the steady one, and is broken and repaired.
    pub(super) moved: &'a Node,
    /// The state to break on purpose.
    pub(super) sabotage: Option<&'a str>,
}

impl<'a> Life<'a> {
    fn nodes(&self) -> [&'a Node; 3] {
        [self.server, self.steady, self.moved]
    }

    /// Returns true if this state is to be broken.
    fn breaks(&self, state: &str) -> bool {
        self.sabotage == Some(state)
    }

    /// The member on a node that is not removed, if there is one.
    fn find_member(&self, node: &Node) -> anyhow::Result<Option<Member>> {
        let detail: WorkloadDetail = self.control_plane.gpuaas(&["workload", "show", WORKLOAD])?;
        let is_on_it = |member: &Member| member.node_name == node.name().as_str() && member.state != "removed";
        Ok(detail.members.into_iter().find(is_on_it))
    }

    /// The member on a node, which must have one.
    fn member_on(&self, node: &Node) -> anyhow::Result<Member> {
        self.find_member(node)?.with_context(|| format!("{} has no member", node.name()))
    }

    /// Sends requests to the Deployment through the nodes that stay while `work` runs, and prints the results.
    fn while_probing<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, ProbeResults)> {
        self.while_probing_through(&[self.server, self.steady], work)
    }

    /// Does the same through these nodes.
    fn while_probing_through<T>(
        &self,
        nodes: &[&Node],
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, ProbeResults)> {
        let prober = Prober::begin(usage::addresses(nodes));
        let done = work();
        let results = prober.end()?;
        println!("    meanwhile: {results}");
        Ok((done?, results))
    }
}

/// Runs the scenario.
pub(crate) fn run_scenario(lab: &Lab, given: &Prepared) -> anyhow::Result<()> {
    let nodes = lab.nodes()?;
    let [server, steady, moved] = nodes.as_slice() else { bail!("the lab does not have three nodes") };
    let answers = Answers::of_release(given.path(Part::Release)?)?;
    let Machines { control_plane, before, .. } = prepare(lab, given, &nodes)?;
    check("a server and two agents are deployed", || {
        let placed = ["--server", server.name().as_str(), "--agent", steady.name().as_str()];
        let deploy = ["workload", "deploy", "rke2", "--name", WORKLOAD];
        let words = [&deploy[..], &placed, &["--agent", moved.name().as_str()]].concat();
        control_plane.run_operation(&words).map(drop)
    })?;
    let cluster = control_plane.cluster(WORKLOAD)?;
    let sabotage = given.wanted().first().map(String::as_str);
    let life = Life { control_plane: &control_plane, cluster: &cluster, server, steady, moved, sabotage };
    check("all three are Ready", || check_ready(&control_plane, &cluster, &life.nodes()))?;
    check("a Deployment's pods run on all three", || usage::deploy(&cluster, &answers, &life.nodes()))?;
    check("they answer each other", || {
        usage::await_dns(&cluster)?;
        usage::answer_each_other(&cluster, &life.nodes())
    })?;
    run_checks(&life, &before)?;
    decommission(&life, &before)
}

/// Runs everything except the decommission. Before and after, pods run on all nodes and answer. `before` is what the machines contained before
/// the deployment, in the order of [`Life::nodes`].
pub(super) fn run_checks(life: &Life<'_>, before: &[MachineListing]) -> anyhow::Result<()> {
    drain::run_checks(life)?;
    membership::run_checks(life, before)?;
    service::run_checks(life)?;
    repair::run_checks(life)
}

fn decommission(life: &Life<'_>, before: &[MachineListing]) -> anyhow::Result<()> {
    check("the workload is decommissioned without residue", || {
        life.control_plane.run_operation(&["workload", "decommission", WORKLOAD, "--yes"])?;
        let detail: WorkloadDetail = life.control_plane.gpuaas(&["workload", "show", WORKLOAD])?;
        let lifecycle = &detail.workload.lifecycle;
        ensure!(lifecycle == "decommissioned", "the workload is {lifecycle}");
        Ok(())
    })?;
    check("every machine has exactly the content that it had before the deployment", || {
        if life.breaks(DECOMMISSIONED) {
            life.steady.capture(&["mkdir", "/etc/rancher"])?;
        }
        let nodes = life.nodes();
        nodes.into_iter().zip(before).try_for_each(|(node, before)| {
            let now = removal::list_content(node)?;
            now.check_same(before, node)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_sabotage_has_its_own_name_and_no_other_is_accepted() {
        let names: BTreeSet<&str> = SABOTAGES.into_iter().collect();
        assert_eq!(names.len(), SABOTAGES.len());
        for name in names {
            check_sabotage(name).expect("a known name");
        }
        assert!(check_sabotage("everything").expect_err("an unknown name").to_string().contains("budget-relaxed"));
    }
}
