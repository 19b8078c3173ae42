//! A typed client of the public API: one method per operation, the same shapes as the server's.
//!
//! Guarantees: trusts one certificate authority and no other; every error that the server explains arrives as its problem document.
//!
//! Deliberately absent: retries (a mutation is repeated by whoever can tell that it may be), and printing.

mod error;
mod events;
mod lines;
mod logs;
mod operations;
mod transport;

pub use error::ClientError;
pub use logs::LogAsk;
pub use transport::Client;
