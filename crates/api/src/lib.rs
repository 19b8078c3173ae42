//! The public API: routes, their permissions, and the OpenAPI document that is generated from them.
//!
//! Guarantees: every route requires a token, except health, the OpenAPI document, enrollment and the install files. Every error is a
//! problem document with a stable code and the request's correlation id. Objects of other projects look absent.
//!
//! Deliberately absent: decisions (`engine`), and TLS (`server`).

mod auth;
mod body;
mod body_budget;
mod certificates_end;
mod convert;
mod correlation;
mod document;
mod downloads;
mod etag;
mod feeds;
mod headers;
mod idempotency;
mod install;
mod journals;
mod json;
mod limits;
mod lookup;
mod metrics;
mod pace;
mod page;
mod peer;
mod problem;
mod refusal_flood;
mod refusals;
mod routes;
mod shares;
mod shown;
mod shown_node;
mod state;
mod store_size;
mod streams;
mod unread;
mod watched;

pub use certificates_end::CertificatesEnd;
pub use document::document;
pub use headers::HEADERS_BYTES_MAX;
pub use install::{Install, SUMS_FILE};
pub use journals::Journals;
pub use limits::Paces;
pub use peer::PeerAddress;
pub use problem::ApiProblem;
pub use routes::router;
pub use shares::{Begun, NoShare, Share, Shares, SharesMax, Standing};
pub use state::{ApiOptions, ApiState};
