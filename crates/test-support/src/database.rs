//! A database for one test.

use std::path::{Path, PathBuf};

/// A SQLite file in a folder of its own, both removed on drop. A store creates the file.
#[derive(Debug)]
pub struct DatabaseFile(tempfile::TempDir);

impl DatabaseFile {
    /// Creates the folder.
    #[expect(clippy::new_without_default, reason = "creates a folder")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder can be created"))
    }

    /// The folder, in which a test can create more files.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder().join("store.db")
    }

    /// URL of the database.
    pub fn url(&self) -> String {
        format!("sqlite://{}", self.path().display())
    }
}
