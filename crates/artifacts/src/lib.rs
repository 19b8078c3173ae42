//! Artifacts by their content: what is in here under a digest has that digest, or is not in here.
//!
//! Guarantees: nothing half-written is ever visible, and what is visible is on the disk; a release is imported whole, verified against its sum
//! file, and that file by a digest or a trusted signature, or not at all; an archive whose paths lead out of it is refused. Every size, count and wait
//! that a release or its server decides has a named bound.
//!
//! Deliberately absent: what a release is for (an app's manifest), rows (`store`), unpacking (the agent's), and any backend but a
//! folder until another was tried.

mod archive;
mod digest;
mod download;
mod error;
mod fetch;
mod folder;
mod importer;
mod reach;
mod release;
mod store;
mod sums;
mod verification;

pub use archive::{ENTRIES_MAX, UNPACKED_BYTES_MAX};
pub use download::DOWNLOAD_TRIES_MAX;
pub use error::ArtifactError;
pub use fetch::SYSTEM_CA_BUNDLE;
pub use importer::{Importer, Sources};
pub use reach::{Network, Reach};
pub use release::{ImportedFile, ImportedRelease, Wanted};
pub use store::{ARTIFACT_BYTES_MAX, ArtifactStore, Users};
pub use verification::{NoPublicKey, Proof, TrustedKey, Verification};
