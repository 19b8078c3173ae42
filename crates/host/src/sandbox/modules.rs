//! Kernel modules that a sandbox has loaded for itself; it does not change its machine's kernel.

use camino::Utf8Path;

use crate::{
    error::HostError,
    file::Changed,
    survey::{self, ModuleState, Tree},
};

/// Records a module as loaded. Programs in the sandbox still see the machine's modules.
pub(super) fn load_module(tree: &Tree, name: &str) -> Result<Changed, HostError> {
    if survey::module_state(tree, name) == ModuleState::Present {
        return Ok(Changed::No);
    }
    let folder = Utf8Path::new("/sys/module").join(name.replace('-', "_"));
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if !is_name {
        return Err(HostError::InvalidPath { path: folder });
    }
    tree.make_folder(&folder)?;
    Ok(Changed::Yes)
}
