//! Files as callers describe them.

use camino::Utf8PathBuf;

/// The effect of an idempotent call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The call changed something.
    Yes,
    /// The host was already in the required state.
    No,
}

impl Changed {
    /// Returns `Yes` if either is.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if self == Self::Yes { self } else { other }
    }
}

/// The required state of a file. It belongs to the user that the host's agent runs as.
#[derive(Clone, PartialEq, Eq)]
pub struct FileSpec {
    /// Absolute path on the host.
    pub path: Utf8PathBuf,
    /// Permission bits.
    pub mode: u32,
    /// The whole content.
    pub content: Vec<u8>,
}

impl std::fmt::Debug for FileSpec {
    /// Omits the content, which may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileSpec({}, {:o}, {} bytes)", self.path, self.mode, self.content.len())
    }
}

/// When written content becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// When the call returns, together with everything written to the file before.
    OnReturn,
    /// With the next write to the same file that is [`Durable::OnReturn`], or earlier.
    Later,
}
