//! An agent that is removed, whose machine is clean afterwards and is added again at once.

use anyhow::ensure;

use super::{Life, WORKLOAD, check_ready};
use crate::test::{
    check::check,
    listing::MachineListing,
    rke2::{removal, usage},
};

/// What `--sabotage` breaks: the removal left a folder on the machine.
pub(super) const MACHINE_CLEAN: &str = "machine-clean";

/// Removes the moved agent and adds its machine again. No request fails meanwhile.
pub(super) fn run_checks(life: &Life<'_>, before: &MachineListing) -> anyhow::Result<()> {
    let removed = life.member_on(life.moved)?.name;
    let ((), results) = life.while_probing(|| {
        check("the agent is removed, and its pods run elsewhere", || remove(life, &removed))?;
        check("its machine has exactly the content that it had before the deployment", || {
            if life.breaks(MACHINE_CLEAN) {
                life.moved.capture(&["mkdir", "/etc/rancher"])?;
            }
            removal::list_content(life.moved)?.check_same(before, life.moved)
        })?;
        check("the same machine is added again and takes pods", || add(life))
    })?;
    check("no request failed meanwhile", || results.check_uninterrupted())
}

/// Removes the member; the budget of the drain before still holds, and allows one disruption.
fn remove(life: &Life<'_>, member: &str) -> anyhow::Result<()> {
    let remove = ["workload", "remove-member", WORKLOAD, member, "--delete-emptydir-data", "--yes"];
    life.control_plane.run_operation(&remove)?;
    ensure!(life.find_member(life.moved)?.is_none(), "the machine still has a member");
    check_ready(life.control_plane, life.cluster, &[life.server, life.steady])?;
    usage::check_pods_on(life.cluster, &[life.server, life.steady])
}

fn add(life: &Life<'_>) -> anyhow::Result<()> {
    let name = life.moved.name().as_str();
    life.control_plane.run_operation(&["workload", "add-member", WORKLOAD, "--agent", name])?;
    check_ready(life.control_plane, life.cluster, &life.nodes())?;
    usage::spread_over(life.cluster, &life.nodes())
}
