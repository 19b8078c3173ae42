//! Tokens, service accounts, access to clusters, the keys that sign tasks, and the authorities that issue certificates.

mod authorities;
mod first_admin;
mod giving;
mod grants;
mod keys;
mod limits;
mod sealing;
mod strangers;
