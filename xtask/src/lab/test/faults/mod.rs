//! `lab test --faults`: one test cell per fault. The fault is real, confirmed by tools other than the platform's, and handled as designed:
//! either everything succeeds, or an exact error code states the problem and the remedy, and everything succeeds after it.
//!
//! Guarantees: every cell reports its proof of the fault. Cells that deploy nothing come first and share untouched nodes; the others get
//! recreated nodes, or one that runs the workload of an earlier cell.
//!
//! Deliberately absent: faults of this machine and of the lab itself; those are separate runs.

mod blocked;
mod broken_off;
mod clock;
mod identity;
mod machine;
mod network;
mod proxy;
mod removed;
mod strings;
mod table;
mod versions;
mod world;

use std::time::Instant;

use anyhow::ensure;
use camino::Utf8Path;

use super::{
    check, evidence,
    machines::{PATIENCE, agent_of},
    prepare::Prepared,
    said,
};
use crate::lab::node::Lab;
use table::{Table, Told};
use world::World;
pub(super) use world::{NEEDS, NODES};

/// A fault and the test of how it is handled.
struct Cell {
    name: &'static str,
    play: fn(&mut World<'_>) -> anyhow::Result<Told>,
}

const fn cell(name: &'static str, play: fn(&mut World<'_>) -> anyhow::Result<Told>) -> Cell {
    Cell { name, play }
}

/// In order: cells that deploy nothing, cells that interrupt a deployment, cells that need a running workload.
const CELLS: &[Cell] = &[
    cell("string-changed", strings::changed),
    cell("string-for-another-node", strings::for_another_node),
    cell("string-with-anothers-token", strings::with_a_token_of_another_node),
    cell("string-of-another-platform", strings::of_another_control_plane),
    cell("string-used", strings::used),
    cell("string-expired", strings::expired),
    cell("string-at-two-at-once", strings::at_two_machines_at_once),
    cell("not-root", machine::not_root),
    cell("no-systemd", machine::no_systemd),
    cell("wrong-architecture", machine::wrong_architecture),
    cell("clock-off", machine::clock_off),
    cell("unreachable-dns", network::dns),
    cell("unreachable-refused", network::refused),
    cell("unreachable-tls-pin", network::tls_pin),
    cell("unreachable-proxy", network::proxy),
    cell("install-dir-read-only", machine::folder_read_only),
    cell("install-dir-noexec", machine::folder_noexec),
    cell("agent-unit-masked", machine::unit_masked),
    cell("machine-id-changed", identity::another_machine_id),
    cell("agent-far-apart", versions::apart),
    cell("agent-older", versions::older),
    cell("agent-newer", versions::newer),
    cell("host-name-underscore", identity::underscore),
    cell("host-name-twice", identity::one_name_twice),
    cell("port-6443-taken", blocked::port_taken),
    cell("leftovers", blocked::leftovers),
    cell("rke2-unit-masked", blocked::unit_masked),
    cell("rke2-dir-noexec", blocked::folder_noexec),
    cell("rke2-dir-read-only", blocked::folder_read_only),
    cell("agent-killed", broken_off::agent_killed),
    cell("node-rebooted", broken_off::node_rebooted),
    cell("control-plane-away", broken_off::control_plane_away),
    cell("disk-full", broken_off::disk_full),
    cell("package-removed", removed::package),
];

/// Runs the cells whose names are wanted, or all of them if none is.
pub(super) fn tell(lab: &Lab, given: &Prepared) -> anyhow::Result<()> {
    let only = given.wanted();
    let cells = CELLS.iter().filter(|cell| only.is_empty() || only.iter().any(|name| name == cell.name));
    let mut world = World::open(lab, given)?;
    let mut table = Table::begin();
    for cell in cells {
        let began = Instant::now();
        let told = (cell.play)(&mut world);
        table.row(cell.name, began.elapsed(), &told);
        match told {
            Ok(_) => check::count(1),
            Err(_) => gather(lab, &given.evidence().join(cell.name)),
        }
        world.settle();
    }
    table.end()
}

/// Saves the journals of the nodes after a failed cell, before the nodes are recreated.
fn gather(lab: &Lab, folder: &Utf8Path) {
    match std::fs::create_dir_all(folder) {
        Ok(()) => evidence::gather(lab, folder),
        Err(error) => eprintln!("    {folder}: {error}"),
    }
}

/// Refuses names that no cell has.
pub(super) fn must_exist(only: &[String]) -> anyhow::Result<()> {
    let unknown: Vec<&str> =
        only.iter().map(String::as_str).filter(|name| !CELLS.iter().any(|cell| cell.name == *name)).collect();
    let names = CELLS.iter().map(|cell| cell.name).collect::<Vec<_>>().join(", ");
    ensure!(unknown.is_empty(), "there is no cell {}; there are {names}", unknown.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cell_has_a_name_of_its_own_that_fits_into_the_table() {
        let names: BTreeSet<&str> = CELLS.iter().map(|cell| cell.name).collect();
        assert_eq!(names.len(), CELLS.len());
        assert!(names.iter().all(|name| name.len() <= 26), "{names:?}");
    }

    #[test]
    fn a_cell_that_there_is_not_is_told() {
        assert!(must_exist(&["disk-full".to_owned()]).is_ok());
        let error = must_exist(&["disk-empty".to_owned()]).expect_err("there is none").to_string();
        assert!(error.contains("no cell disk-empty") && error.contains("disk-full"), "{error}");
    }
}
