//! `lab test --faults`: one test cell per fault. The fault is real, confirmed by tools other than the platform's, and handled as designed:
//! either everything succeeds, or an exact error code states the problem and the remedy, and everything succeeds after it.
//!
//! Guarantees: every cell reports its proof of the fault. Cells that deploy nothing come first and share untouched nodes; the others get
//! recreated nodes, or one that runs the workload of an earlier cell.
//!
//! Deliberately absent: faults of this machine and of the lab itself, which are separate runs; and refusals of the installation script that
//! need no booted machine, which `crates/cli/tests/platform/install/` tests in every shell.

mod blocked;
mod enrollment;
mod environment;
mod identity;
mod interruptions;
mod removed;
mod table;
mod versions;

use std::time::Instant;

use anyhow::ensure;
use camino::Utf8Path;

use super::{
    check, command_output, evidence,
    machines::{WAIT_MAX, agent_of},
    parts::Prepared,
};
use crate::node::Lab;
use environment::Environment;
pub(super) use environment::{NEEDS, NODES};
use table::{CellResult, Table};

/// A fault and the test of how it is handled.
struct Cell {
    name: &'static str,
    run: fn(&mut Environment) -> anyhow::Result<CellResult>,
}

const fn cell(name: &'static str, run: fn(&mut Environment) -> anyhow::Result<CellResult>) -> Cell {
    Cell { name, run }
}

/// In order: cells that deploy nothing, cells that interrupt a deployment, cells that need a running workload.
const CELLS: &[Cell] = &[
    cell("string-for-another-node", enrollment::for_another_node),
    cell("string-used-concurrently", enrollment::at_two_machines_at_once),
    cell("no-systemd", enrollment::no_systemd),
    cell("install-dir-read-only", enrollment::folder_read_only),
    cell("agent-unit-masked", enrollment::unit_masked),
    cell("machine-id-changed", identity::another_machine_id),
    cell("agent-too-old", versions::too_old),
    cell("agent-older", versions::older),
    cell("agent-newer", versions::newer),
    cell("host-name-underscore", identity::underscore),
    cell("host-name-shared", identity::shared_host_name),
    cell("port-6443-taken", |environment| blocked::deploy(environment, &blocked::PORT_TAKEN)),
    cell("leftovers", |environment| blocked::deploy(environment, &blocked::LEFTOVERS)),
    cell("rke2-unit-masked", |environment| blocked::deploy(environment, &blocked::UNIT_MASKED)),
    cell("rke2-dir-noexec", |environment| blocked::deploy(environment, &blocked::FOLDER_NOEXEC)),
    cell("rke2-dir-read-only", |environment| blocked::deploy(environment, &blocked::FOLDER_READ_ONLY)),
    cell("agent-killed", interruptions::agent_killed),
    cell("node-rebooted", interruptions::node_rebooted),
    cell("control-plane-down", interruptions::control_plane_down),
    cell("disk-full", interruptions::disk_full),
    cell("package-removed", removed::package),
];

/// Runs the cells whose names are wanted, or all of them if none is.
pub(super) fn run_scenario(lab: &Lab, given: &Prepared) -> anyhow::Result<()> {
    let only = given.wanted();
    let cells = CELLS.iter().filter(|cell| only.is_empty() || only.iter().any(|name| name == cell.name));
    let mut environment = Environment::open(lab, given)?;
    let mut table = Table::begin();
    for cell in cells {
        let began = Instant::now();
        let result = (cell.run)(&mut environment);
        table.row(cell.name, began.elapsed(), &result);
        match result {
            Ok(_) => check::count(1),
            Err(_) => gather(lab, &given.evidence().join(cell.name)),
        }
        environment.settle();
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
pub(super) fn check_names(only: &[String]) -> anyhow::Result<()> {
    let unknown: Vec<&str> =
        only.iter().map(String::as_str).filter(|name| !CELLS.iter().any(|cell| cell.name == *name)).collect();
    let names = CELLS.iter().map(|cell| cell.name).collect::<Vec<_>>().join(", ");
    ensure!(unknown.is_empty(), "unknown cell {}; the cells are {names}", unknown.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cell_names_are_unique_and_fit_the_table() {
        let names: BTreeSet<&str> = CELLS.iter().map(|cell| cell.name).collect();
        assert_eq!(names.len(), CELLS.len());
        assert!(names.iter().all(|name| name.len() <= 26), "{names:?}");
    }

    #[test]
    fn unknown_cell_is_refused() {
        assert!(check_names(&["disk-full".to_owned()]).is_ok());
        let error = check_names(&["disk-empty".to_owned()]).expect_err("no such cell exists").to_string();
        assert!(error.contains("unknown cell disk-empty") && error.contains("disk-full"), "{error}");
    }
}
