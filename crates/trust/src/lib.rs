//! Trust: the certificate authority, node identities, enrollment strings, signed task envelopes, signing-key sets, sealed secrets and
//! tokens.
//!
//! Guarantees: no I/O, no clock, and no randomness except what callers pass in (the crypto library generates keys itself); no secret is
//! printable.
//!
//! Deliberately absent: storage of keys (`store`, `server`) and permissions (`engine`, `api`).

mod audit_seal;
mod authority;
mod bundle;
mod digest;
mod dsse;
mod enrollment;
#[cfg(test)]
mod hostile_tests;
mod identity;
mod key_set;
mod pre_authentication;
mod provider;
mod reloadable;
mod renewal;
mod seal;
mod statement;
mod tls;
mod token;
mod trusted;

pub use audit_seal::AuditSealStatement;
pub use authority::{
    Authority, AuthorityError, NODE_CERTIFICATE_LIFE, NodeKey, SERVER_CERTIFICATE_LIFE, ServerKey, certificate_pem,
    certificate_request::requested_key_sha256, certificates_of_pem, certified_key_sha256, names_issuer,
};
pub use bundle::root_of_bundle;
pub use digest::{Sha256Writer, constant_time_eq, is_sha256_hex, sha256_hex};
pub use dsse::{Envelope, EnvelopeError, PAYLOAD_TYPE, SignError, TaskSigner};
pub use enrollment::{EnrollmentError, EnrollmentString};
pub use identity::{IdentityError, NodeIdentity, ReplicaIdentity, expires_at, issued_at};
pub use key_set::{KeySetError, SignedKeySet, SigningKeySet, TaskKey};
pub use provider::TlsError;
pub use reloadable::ReloadableCertificate;
pub use renewal::{PermittedUse, RENEWAL_GRACE, is_renewable, permitted_use};
pub use seal::{RecordKey, SealError, SealingKey, SealingKeys};
pub use statement::TaskStatement;
pub use tls::{
    ALPN_FETCH, ALPN_NODE, ALPN_REPLICA, OldestTls, PinnedAuthority, api_server_config, channel_server_config,
    client_config, node_client_config, pinned_client_config, replica_client_config, replica_server_config,
};
pub use token::{ApiToken, SecretText, TokenKey};
pub use trusted::TrustedAuthorities;
