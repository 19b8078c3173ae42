//! The handlers of the task types that belong to no app, one file each, and what several of them use (`clock`, `mounts`). The handlers of an
//! app are in the app's folder.

pub(crate) mod artifact_fetch;
mod clock;
pub(crate) mod fix;
pub(crate) mod inspect;
mod machine;
mod mounts;
pub(crate) mod noop;
pub(crate) mod preflight;
pub(crate) mod residue;
