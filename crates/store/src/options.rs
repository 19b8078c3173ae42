//! The location of the store.

use std::fmt;

use crate::{address, dialect::Dialect, error::StoreError};

/// The location of the store.
#[derive(Clone)]
pub struct StoreOptions {
    /// `sqlite:///path/to/file.db`, or `postgres://user:password@host/database?sslmode=verify-full`. Only a host of
    /// this machine or a folder of sockets may omit that `sslmode`. A pooler in between must pool sessions, not
    /// transactions.
    pub url: String,
}

impl fmt::Debug for StoreOptions {
    /// Prints only the scheme: the rest of the address may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions").field("url", &format_args!("{}:…", self.scheme())).finish()
    }
}

impl StoreOptions {
    /// Returns the error with which [`crate::Store::open`] would refuse this address; `None` if it is acceptable. Checks that
    /// the scheme is supported and that a database across a network has to prove its identity.
    pub fn problem(&self) -> Option<StoreError> {
        self.check().err()
    }

    pub(crate) fn check(&self) -> Result<Dialect, StoreError> {
        let dialect = Dialect::of(&self.url)
            .ok_or_else(|| StoreError::Database(format!("unsupported database scheme: {}", self.scheme())))?;
        address::check(dialect, &self.url)?;
        Ok(dialect)
    }

    fn scheme(&self) -> &str {
        self.url.split(':').next().unwrap_or_default()
    }
}
