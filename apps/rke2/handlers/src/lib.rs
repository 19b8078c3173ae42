//! The handlers of RKE2's task types, one file each.
//!
//! Deliberately absent: tasks that are not specific to RKE2, for example preflight, download and residue (`agent`), and when a task runs
//! (`app-rke2`).

mod configure;
mod drift;
mod enable;
mod install;
mod kubeconfig_read;
mod kubelet_log;
mod observe;
mod program;
mod start;
mod stop;
mod survivors;
mod uninstall;
mod uninstall_record;

use gpuaas_app_rke2_tasks::{Rke2Configure, Rke2Role};
use gpuaas_handler::{Entry, entry};

/// RKE2's units, whose state and journal the control plane may request.
pub const UNITS: [&str; 2] = [Rke2Role::Server.unit(), Rke2Role::Agent.unit()];

/// Files and folders on a node that belong to what an observation compares: the only ones whose changes the agent reports for [`UNITS`].
pub const WATCHED: [&str; 6] = [
    Rke2Configure::CONFIG_PATH,
    Rke2Configure::TOKEN_PATH,
    Rke2Configure::AGENT_TOKEN_PATH,
    drift::CONFIG_FOLDER,
    kubeconfig_read::KUBECONFIG,
    program::PROGRAM,
];

/// Returns RKE2's task types with their handlers.
pub fn catalog() -> Vec<Entry> {
    vec![
        entry(true, install::run),
        entry(true, configure::run),
        entry(true, start::run),
        entry(true, stop::run),
        entry(true, enable::run),
        entry(false, observe::run),
        entry(false, kubeconfig_read::run),
        entry(true, uninstall::run).frees_host_if(|_| true),
    ]
}
