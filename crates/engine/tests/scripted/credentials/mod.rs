//! Tokens, service accounts, access to clusters, and the keys that sign tasks.

mod giving;
mod grants;
mod keys;
mod limits;
mod strangers;
