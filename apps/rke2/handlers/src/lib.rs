//! The handlers of RKE2's task types, one file each.
//!
//! Deliberately absent: tasks that are not specific to RKE2, for example preflight, download and residue (`agent`), and when a task runs
//! (`app-rke2`).

mod configure;
mod install;
mod kubeconfig_read;
mod observe;
mod start;
mod stop;
mod uninstall;

use gpuaas_app_rke2_tasks::Rke2Role;
use gpuaas_handler::{Entry, entry};

/// RKE2's units, whose state and journal the control plane may request.
pub const UNITS: [&str; 2] = [Rke2Role::Server.unit(), Rke2Role::Agent.unit()];

/// Returns RKE2's task types with their handlers.
pub fn catalog() -> Vec<Entry> {
    vec![
        entry(true, install::run),
        entry(true, configure::run),
        entry(true, start::run),
        entry(true, stop::run),
        entry(false, observe::run),
        entry(false, kubeconfig_read::run),
        entry(true, uninstall::run).frees_host_if(|_| true),
    ]
}
