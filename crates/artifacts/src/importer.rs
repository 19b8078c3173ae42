//! Imports a release from a folder of this machine or from a URL.

use std::path::{Path, PathBuf};

use crate::{
    download::import_release_url,
    egress::EgressPolicy,
    error::ArtifactError,
    fetch::{HttpFetch, parse_url},
    folder::Folder,
    release::{ImportedRelease, ReleaseRequest, import_release},
    store::ArtifactStore,
    verification::Verification,
};

/// Imports releases into one store.
#[derive(Clone, Debug)]
pub struct Importer {
    /// Destination of imported files.
    pub store: ArtifactStore,
    /// Folder for incomplete downloads, which another attempt continues.
    pub scratch: PathBuf,
    /// The control plane's settings for sources.
    pub sources: Sources,
}

/// Settings for the sources of releases and their verification.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Path of a PEM file with the certificate authorities that are trusted for release servers.
    pub ca_bundle: PathBuf,
    /// The servers that may be connected to.
    pub egress: EgressPolicy,
    /// Folder below which releases may be imported; `None` disables import from folders.
    pub import_dir: Option<PathBuf>,
    /// Settings for verifying checksum files.
    pub verification: Verification,
}

impl Importer {
    /// Imports the release at `source`, a folder's absolute path or an `https` URL. If the release names no version, the last part of
    /// `source` is returned as its version.
    pub async fn import(&self, source: &str, wanted: &ReleaseRequest<'_>) -> Result<ImportedRelease, ArtifactError> {
        let verification = &self.sources.verification;
        let mut imported = if source.starts_with("https://") {
            parse_url(source).map_err(ArtifactError::Source)?;
            let fetch = HttpFetch::trusting(&self.sources.ca_bundle, self.sources.egress.clone())?;
            let scratch = self.scratch.join(crate::digest::of_text(source));
            import_release_url(&self.store, &fetch, source, wanted, verification, &scratch).await?
        } else if Path::new(source).is_absolute() {
            import_release(&self.store, self.folder(Path::new(source))?, wanted, verification).await?
        } else {
            return Err(ArtifactError::Source("this is neither"));
        };
        if imported.version.is_none() {
            imported.version = Path::new(source).file_name().and_then(|name| name.to_str()).map(str::to_owned);
        }
        Ok(imported)
    }

    /// Opens a source folder. A missing, an unreadable and a forbidden folder give the same error, so that an import reveals nothing about
    /// this machine's folders.
    fn folder(&self, source: &Path) -> Result<Folder, ArtifactError> {
        let refused = |why: &dyn std::fmt::Display| {
            tracing::warn!(folder = %source.display(), %why, "a folder cannot be imported from");
            ArtifactError::Unreachable
        };
        let top = self.sources.import_dir.as_deref().ok_or_else(|| refused(&"release-import-dir is not set"))?;
        Folder::open_below(top, source).map_err(|error| refused(&error))
    }
}

#[cfg(test)]
mod tests;
