//! Implements `gpuaas man`.

use std::path::Path;

use anyhow::Context;
use gpuaas_client::ClientError;

use crate::help;

/// Writes a manual page for every command that is not hidden into `folder`, and creates the folder.
pub(crate) fn write(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| {
        ClientError::InvalidSetting(format!("the directory {} cannot be made: {error}", folder.display()))
    })?;
    clap_mangen::generate_to(help::command(), folder).with_context(|| format!("writing {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_has_a_manual_page() {
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("man1");
        write(&pages).unwrap();
        for name in ["gpuaas.1", "gpuaas-workload-deploy.1", "gpuaas-keys-rotate.1", "gpuaas-man.1"] {
            let page = std::fs::read_to_string(pages.join(name)).expect(name);
            assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
        }
        assert!(!pages.join("gpuaas-sandbox-init.1").exists(), "a hidden command has a page");
    }
}
