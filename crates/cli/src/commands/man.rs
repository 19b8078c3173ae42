//! Implements `gpuaas man`.

use std::path::Path;

use anyhow::Context;

use crate::help;

/// Writes a manual page for every command that is not hidden into `folder`, and creates the folder.
pub(crate) fn write(folder: &Path) -> anyhow::Result<()> {
    let writing = || format!("writing {}", folder.display());
    std::fs::create_dir_all(folder).with_context(writing)?;
    clap_mangen::generate_to(help::command(), folder).with_context(writing)
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
