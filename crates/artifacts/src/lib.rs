//! Content-addressed artifact store and import of releases.
//!
//! Guarantees:
//! - An artifact is stored under its SHA-256 only if its bytes have that digest. Partial uploads are never visible; visible
//!   artifacts are synced to disk.
//! - A release is imported completely or refused. Its files are verified against its checksum file, and the checksum file by a digest or a trusted
//!   signature, unless the settings allow unverified releases.
//! - An archive with a path that leads out of it is refused.
//! - Every size, count and wait that a release or its server determines has a named bound.
//!
//! Deliberately absent: the purpose of a release (an app's manifest), rows (`store`), unpacking (the agent), and backends other than a
//! folder, until another one has been tried.

mod archive;
mod digest;
mod download;
mod egress;
mod error;
mod fetch;
mod folder;
mod importer;
mod release;
mod store;
mod sums;
mod verification;

pub use archive::{ENTRIES_MAX, UNPACKED_BYTES_MAX};
pub use download::DOWNLOAD_TRIES_MAX;
pub use egress::{EgressPolicy, Network};
pub use error::ArtifactError;
pub use fetch::SYSTEM_CA_BUNDLE;
pub use importer::{Importer, Sources};
pub use release::{ImportedFile, ImportedRelease, ReleaseRequest};
pub use store::{ARTIFACT_BYTES_MAX, ArtifactStore, Writers};
pub use verification::{Proof, PublicKeyError, TrustedKey, Verification};
