//! The public API: routes, their permissions, and the OpenAPI document that is generated from them.
//!
//! Guarantees: every route requires a token or the session of a browser, except health, the OpenAPI document, sign-in, enrollment, the
//! install files and the files of the workload shell. Every error is a problem document with a stable code and the request's correlation
//! id. Objects of other projects look absent.
//!
//! Deliberately absent: decisions (`engine`), and TLS (`server`).

mod auth;
mod binary;
mod body;
mod body_budget;
mod cached;
mod certificate_expiry;
mod convert;
mod correlation;
mod credential;
mod declaration;
mod declared;
mod document;
mod downloads;
mod drain;
mod etag;
mod feeds;
mod headers;
mod idempotency;
mod in_progress;
mod install;
mod journals;
mod json;
mod limits;
mod lookup;
mod metrics;
mod naming_body;
mod node_views;
mod operations;
mod page;
mod peer;
mod problem;
mod refusal_limiter;
mod refusals;
mod router;
mod routes;
mod shares;
mod state;
mod store_size;
mod streams;
mod views;
mod waiting;
mod workload_logs;
mod workload_shell;

pub use certificate_expiry::CertificateExpiry;
pub use document::document;
pub use headers::HEADERS_BYTES_MAX;
pub use install::{Install, SUMS_FILE};
pub use journals::Journals;
pub use limits::Rates;
pub use peer::PeerAddress;
pub use problem::ApiProblem;
pub use router::router;
pub use shares::{Activity, RequestGuard, Share, ShareError, ShareLimits, Shares};
pub use state::{ApiOptions, ApiState};
