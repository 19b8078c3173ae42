//! An agent that is removed, whose machine is clean afterwards and is used again at once: it replaces another agent, whose machine is clean
//! afterwards in turn, and is added again at once.

use anyhow::{bail, ensure};

use super::{Life, WORKLOAD, check_ready};
use crate::{
    node::Node,
    test::{
        check::check,
        listing::MachineListing,
        rke2::{removal, usage},
    },
};

/// What `--sabotage` breaks: the removal, and the replacement, left a folder on the machine.
pub(super) const MACHINE_CLEAN: &str = "machine-clean";
pub(super) const REPLACED_CLEAN: &str = "replaced-clean";

/// Removes the moved agent, replaces the steady one by its machine, and adds the machine of the steady one again. No request fails meanwhile.
pub(super) fn run_checks(life: &Life<'_>, before: &[MachineListing]) -> anyhow::Result<()> {
    let [_, of_steady, of_moved] = before else { bail!("the content of a machine is missing") };
    let removed = life.member_on(life.moved)?.name;
    let ((), results) = life.while_probing(|| {
        check("the agent is removed, and its pods run elsewhere", || remove(life, &removed))?;
        check("its machine has exactly the content that it had before the deployment", || {
            check_clean(life.moved, of_moved, life.breaks(MACHINE_CLEAN))
        })
    })?;
    check("no request failed meanwhile", || results.check_uninterrupted())?;

    let replaced = life.member_on(life.steady)?.name;
    // Only the server stays.
    let ((), results) = life.while_probing_through(&[life.server], || {
        check("the same machine replaces another agent at once, and takes pods", || replace(life, &replaced))?;
        check("the machine of the replaced agent has exactly the content that it had before the deployment", || {
            check_clean(life.steady, of_steady, life.breaks(REPLACED_CLEAN))
        })?;
        check("the same machine is added again and takes pods", || add(life))
    })?;
    check("no request failed during the replacement", || results.check_uninterrupted())
}

/// Removes the member; the budget of the drain before still holds, and allows one disruption.
fn remove(life: &Life<'_>, member: &str) -> anyhow::Result<()> {
    let remove = ["workload", "remove-member", WORKLOAD, member, "--delete-emptydir-data", "--yes"];
    life.control_plane.run_operation(&remove)?;
    ensure!(life.find_member(life.moved)?.is_none(), "the machine still has a member");
    check_ready(life.control_plane, life.cluster, &[life.server, life.steady])?;
    usage::check_pods_on(life.cluster, &[life.server, life.steady])
}

/// Replaces the member by one on the machine of the removed agent.
fn replace(life: &Life<'_>, member: &str) -> anyhow::Result<()> {
    let replace = ["workload", "replace-member", WORKLOAD, member, "--by", life.moved.name().as_str()];
    life.control_plane.run_operation(&[&replace[..], &["--delete-emptydir-data", "--yes"]].concat())?;
    ensure!(life.find_member(life.steady)?.is_none(), "the machine of the replaced agent still has a member");
    let state = life.member_on(life.moved)?.state;
    ensure!(state == "ready", "the new member is {state}");
    check_ready(life.control_plane, life.cluster, &[life.server, life.moved])?;
    usage::spread_over(life.cluster, &[life.server, life.moved])
}

fn add(life: &Life<'_>) -> anyhow::Result<()> {
    let name = life.steady.name().as_str();
    life.control_plane.run_operation(&["workload", "add-member", WORKLOAD, "--agent", name])?;
    check_ready(life.control_plane, life.cluster, &life.nodes())?;
    usage::spread_over(life.cluster, &life.nodes())
}

fn check_clean(machine: &Node, before: &MachineListing, breaks: bool) -> anyhow::Result<()> {
    if breaks {
        machine.capture(&["mkdir", "/etc/rancher"])?;
    }
    removal::list_content(machine)?.check_same(before, machine)
}
