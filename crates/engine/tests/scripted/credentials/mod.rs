//! Tokens, service accounts, access to clusters, and the keys that sign tasks.

mod first_admin;
mod giving;
mod grants;
mod keys;
mod limits;
mod sealing;
mod strangers;
