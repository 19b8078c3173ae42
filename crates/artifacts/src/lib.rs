//! Artifacts by their content: what is in here under a digest has that digest, or is not in here.
//!
//! Guarantees: nothing half-written is ever visible; a release is imported whole and verified against its own sum file, or not at all.
//!
//! Deliberately absent: what a release is for (an app's manifest), rows (`store`), and any backend but a folder until another was tried.

mod error;
mod release;
mod store;

pub use error::ArtifactError;
pub use release::{ImportedFile, ImportedRelease, import_release};
pub use store::ArtifactStore;
