//! Tokens, service accounts, sessions of browsers, access to clusters, signing and sealing keys, and certificate authorities.

mod authorities;
mod events;
mod first_admin;
mod grants;
mod key_delivery;
mod keys;
mod limits;
mod other_tenants;
mod sealing;
mod sessions;
