//! Importing a release from wherever it lies: a folder of this machine, or the URL of a release.

use std::path::{Path, PathBuf};

use crate::{
    download::import_release_url,
    error::ArtifactError,
    fetch::{HttpFetch, usable},
    folder::Folder,
    reach::Reach,
    release::{ImportedRelease, Wanted, import_release},
    store::ArtifactStore,
    verification::Verification,
};

/// Imports releases into one store.
#[derive(Clone, Debug)]
pub struct Importer {
    /// What is imported goes here.
    pub store: ArtifactStore,
    /// A folder for downloads that are not complete yet; another try continues them.
    pub scratch: PathBuf,
    /// What the control plane's settings say of sources.
    pub sources: Sources,
}

/// What the control plane's settings say of where releases may come from, and of what makes one believed.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The authorities, PEM, that a release's server must prove itself by.
    pub ca_bundle: PathBuf,
    /// Servers that may be connected to.
    pub reach: Reach,
    /// The folder below which releases may lie; none are imported from folders when absent.
    pub import_dir: Option<PathBuf>,
    /// What an import may rest on.
    pub verification: Verification,
}

impl Importer {
    /// Imports the release at `source` (a folder's absolute path, or an `https` URL), and tells the version that the release names, at least by where
    /// it lies.
    pub async fn import(&self, source: &str, wanted: &Wanted<'_>) -> Result<ImportedRelease, ArtifactError> {
        let verification = &self.sources.verification;
        let mut imported = if source.starts_with("https://") {
            usable(source).map_err(ArtifactError::Source)?;
            let fetch = HttpFetch::trusting(&self.sources.ca_bundle, self.sources.reach.clone())?;
            let scratch = self.scratch.join(crate::digest::of_text(source));
            import_release_url(&self.store, &fetch, source, wanted, verification, &scratch).await?
        } else if Path::new(source).is_absolute() {
            import_release(&self.store, self.folder(Path::new(source))?, wanted, verification).await?
        } else {
            return Err(ArtifactError::Source("it is neither"));
        };
        if imported.version.is_none() {
            imported.version = Path::new(source).file_name().and_then(|name| name.to_str()).map(str::to_owned);
        }
        Ok(imported)
    }

    /// One error for a folder that is not there, that may not be read, and that lies elsewhere: who imports learns nothing of this machine's folders.
    fn folder(&self, source: &Path) -> Result<Folder, ArtifactError> {
        let refused = |why: &dyn std::fmt::Display| {
            tracing::warn!(folder = %source.display(), %why, "a folder cannot be imported from");
            ArtifactError::Unreachable
        };
        let top = self.sources.import_dir.as_deref().ok_or_else(|| refused(&"release-import-dir is not set"))?;
        Folder::below(top, source).map_err(|error| refused(&error))
    }
}

#[cfg(test)]
#[path = "importer_tests.rs"]
mod tests;
