//! A typed client of the public API: one method per operation, with the server's types.
//!
//! Guarantees: it trusts only the certificate authorities it is given. Every error that the server explains is returned as its problem
//! document.
//!
//! Deliberately absent: retries (only the caller knows whether a mutation may be repeated), and printing.

mod audit;
mod error;
mod escape;
mod events;
mod lines;
mod logs;
mod operations;
mod transport;

pub use audit::AuditQuery;
pub use error::ClientError;
pub use logs::{LogOptions, WorkloadLogOptions};
pub use operations::GiveUp;
pub use transport::{Client, check_url};
