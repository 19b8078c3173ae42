//! Tokens, service accounts and the keys that sign tasks.

mod giving;
mod keys;
mod limits;
