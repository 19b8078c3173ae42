//! Files as callers describe them.

use camino::Utf8PathBuf;

/// Whether a call had anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It changed something.
    Yes,
    /// All was as it should be.
    No,
}

impl Changed {
    /// Yes when either is.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if self == Self::Yes { self } else { other }
    }
}

/// A file as it should be. It belongs to whom the host's agent runs as.
#[derive(Clone, PartialEq, Eq)]
pub struct FileSpec {
    /// Where.
    pub path: Utf8PathBuf,
    /// Its permission bits.
    pub mode: u32,
    /// What it holds.
    pub content: Vec<u8>,
}

impl std::fmt::Debug for FileSpec {
    /// Without the content, which may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileSpec({}, {:o}, {} bytes)", self.path, self.mode, self.content.len())
    }
}
