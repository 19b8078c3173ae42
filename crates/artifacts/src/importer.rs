//! Importing a release from wherever it lies: a folder of this machine, or the URL of a release.

use std::path::{Path, PathBuf};

use crate::{
    download::import_release_url,
    error::ArtifactError,
    fetch::HttpFetch,
    release::{ImportedRelease, import_release},
    store::ArtifactStore,
};

/// Imports releases into one store.
#[derive(Clone, Debug)]
pub struct Importer {
    /// What is imported goes here.
    pub store: ArtifactStore,
    /// A folder for downloads that are not complete yet; another try continues them.
    pub scratch: PathBuf,
    /// The authorities, PEM, that a release's server must prove itself by.
    pub ca_bundle: PathBuf,
}

impl Importer {
    /// Imports `wanted` files of the release at `source` (a folder's absolute path, or an `https` URL), verified against its sum file
    /// `sums`, and tells the version that the release names, at least by where it lies.
    pub async fn import(&self, source: &str, wanted: &[String], sums: &str) -> Result<ImportedRelease, ArtifactError> {
        let mut imported = if source.starts_with("https://") {
            let fetch = HttpFetch::trusting(&self.ca_bundle)?;
            let scratch = self.scratch.join(crate::digest::of_text(source));
            import_release_url(&self.store, &fetch, source, wanted, sums, &scratch).await?
        } else if Path::new(source).is_absolute() {
            import_release(&self.store, Path::new(source), wanted, sums).await?
        } else {
            return Err(ArtifactError::Source);
        };
        if imported.version.is_none() {
            imported.version = Path::new(source).file_name().and_then(|name| name.to_str()).map(str::to_owned);
        }
        Ok(imported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Users;

    #[tokio::test]
    async fn a_source_that_is_neither_a_folder_nor_an_https_url_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let importer = Importer {
            store: ArtifactStore::in_folder(folder.path(), Users::One).expect("a store"),
            scratch: folder.path().join("scratch"),
            ca_bundle: folder.path().join("none"),
        };
        for source in ["http://host/v1", "v1.36.3", "", "ftp://host", "file:///etc"] {
            let refused = importer.import(source, &[], "sums").await;
            assert!(matches!(refused, Err(ArtifactError::Source)), "{source}: {refused:?}");
        }
    }
}
