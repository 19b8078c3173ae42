//! `--force` of commands that write a file.

use std::path::Path;

use clap::Args;
use gpuaas_client::ClientError;

/// Whether an existing file may be replaced.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Overwrite {
    /// Replace the file if it exists; without this flag, an existing file is refused
    #[arg(long)]
    force: bool,
}

impl Overwrite {
    /// Refuses a path at which something exists, or in a missing directory. Called before the work, because a refusal after it would waste
    /// it.
    pub(crate) fn check(self, path: &Path) -> Result<(), ClientError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| matches!(folder.try_exists(), Ok(false))) {
            return Err(ClientError::InvalidSetting(format!("the directory {} does not exist", folder.display())));
        }
        if self.force || path.symlink_metadata().is_err() {
            return Ok(());
        }
        let refused = format!("{} exists already: name another file, or replace it with --force", path.display());
        Err(ClientError::InvalidSetting(refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_file_is_replaced_only_with_force() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let refused = Overwrite { force: false }.check(file.path()).expect_err("it exists").to_string();
        assert!(refused.contains("--force"), "{refused}");
        assert!(Overwrite { force: true }.check(file.path()).is_ok());
        assert!(Overwrite { force: false }.check(&file.path().with_extension("other")).is_ok());
    }
}
