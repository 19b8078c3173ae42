//! The handlers of the task types, one file each, and what several of them use (`clock`, `mounts`). Every handler is idempotent: it checks
//! before it acts, so that a repetition after an interruption does only what is missing.

pub(crate) mod artifact_fetch;
mod clock;
pub(crate) mod fix;
pub(crate) mod inspect;
mod machine;
mod mounts;
pub(crate) mod noop;
pub(crate) mod preflight;
pub(crate) mod residue;
pub(crate) mod rke2_configure;
pub(crate) mod rke2_install;
pub(crate) mod rke2_kubeconfig_read;
pub(crate) mod rke2_observe;
pub(crate) mod rke2_start;
pub(crate) mod rke2_stop;
pub(crate) mod rke2_uninstall;
#[cfg(test)]
pub(crate) mod test_host;
