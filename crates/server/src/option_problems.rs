//! Checks of the settings that need no running control plane.

use std::{os::unix::fs::PermissionsExt, path::Path};

use gpuaas_api::SUMS_FILE;

use crate::{data_dir, error::ServerError, options::ServerOptions, sealing_key};

impl ServerOptions {
    /// Returns the problems of these settings that can be found without starting or changing anything.
    pub fn problems(&self) -> Vec<ServerError> {
        let mut problems: Vec<ServerError> = Vec::new();
        problems.extend(data_dir::check_writable(&self.data_dir).err());
        problems.extend(data_dir::refuse_unfinished_restore(&self.data_dir).err());
        problems.extend(sealing_key::check_key(self).err());
        problems.extend(self.store().problem().map(ServerError::from));
        problems.extend(self.packages_dir.as_deref().and_then(packages_problem));
        problems.extend(self.reimage_hook.as_deref().and_then(hook_problem));
        problems.extend(self.release_import_dir.as_deref().and_then(import_dir_problem));
        problems
    }
}

/// Checks the configured packages directory.
fn packages_problem(folder: &Path) -> Option<ServerError> {
    let sums = folder.join(SUMS_FILE);
    std::fs::metadata(&sums).err().map(|source| ServerError::Packages { folder: folder.to_owned(), source })
}

/// Checks the configured reimage hook: it must be an executable file.
fn hook_problem(program: &Path) -> Option<ServerError> {
    let source = match std::fs::metadata(program) {
        Ok(metadata) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => return None,
        Ok(_) => std::io::Error::other("it is not an executable file"),
        Err(error) => error,
    };
    Some(ServerError::ReimageHook { program: program.to_owned(), source })
}

/// Checks the configured import directory: it must be an absolute path of a directory.
fn import_dir_problem(folder: &Path) -> Option<ServerError> {
    let problem = |source| ServerError::ImportDir { folder: folder.to_owned(), source };
    match std::fs::metadata(folder) {
        Ok(_) if !folder.is_absolute() => Some(problem(std::io::ErrorKind::InvalidInput.into())),
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some(problem(std::io::ErrorKind::NotADirectory.into())),
        Err(source) => Some(problem(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_directory_must_be_an_absolute_path_of_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(import_dir_problem(folder.path()).is_none());
        for bad in [file.as_path(), &folder.path().join("nowhere"), Path::new(".")] {
            assert!(matches!(import_dir_problem(bad), Some(ServerError::ImportDir { .. })), "{}", bad.display());
        }
    }
}
