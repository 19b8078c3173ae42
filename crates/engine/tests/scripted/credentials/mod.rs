//! Tokens, service accounts, access to clusters, signing and sealing keys, and certificate authorities.

mod authorities;
mod first_admin;
mod giving;
mod grants;
mod keys;
mod limits;
mod sealing;
mod strangers;
