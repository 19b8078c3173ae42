//! The supervisor on port 9345, through which nodes join.
//!
//! `/ping` and `/cacerts` are anonymous. All other paths require the agents' or the servers' password, or a certificate of
//! the cluster's client CA. Kubelet certificates are issued only after the node's password was checked against the cluster.
//! Errors are Kubernetes `Status` objects and close the connection, as in RKE2.
//!
//! Deliberately absent: the websocket tunnel, bootstrap data, token rotation, snapshots. Their paths return 404.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderMap, StatusCode, header};
use serde_json::json;
use tokio::sync::watch;

use crate::api_client::{Client, join_host_port};
use crate::node_password::{self, Outcome};
use crate::pki::{Leaf, Subject};
use crate::server_files::ServerFiles;
use crate::settings::APISERVER_PORT;
use crate::tls::PeerCertificates;
use crate::{log, token};

/// Limit of a request body; a DER certificate request is under 1 KiB.
const BODY_BYTES_MAX: usize = 64 << 10;
/// The longest name that RFC 1123 allows.
const NODE_NAME_LENGTH_MAX: usize = 253;

/// Shared state of the routes.
pub(crate) struct Supervisor {
    pub(crate) files: Arc<ServerFiles>,
    /// Client of the apiserver as the cluster's administrator.
    pub(crate) admin: Arc<Client>,
    /// Whether the apiserver is ready.
    pub(crate) core_ready: watch::Receiver<bool>,
    pub(crate) address: String,
    pub(crate) cluster: serde_json::Value,
}

/// Builds an error response: a Kubernetes `Status` that closes the connection.
fn refuse(status: StatusCode, reason: &str, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16(),
    });
    (status, [(header::CONNECTION, "close")], Json(body)).into_response()
}

fn not_ready() -> Response {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "runtime core not ready")
}

/// Builds all routes.
pub(crate) fn routes(supervisor: Arc<Supervisor>) -> Router {
    let joined = Router::new()
        .route("/v1-rke2/readyz", get(readyz))
        .route("/v1-rke2/config", get(config))
        .route("/v1-rke2/apiservers", get(apiservers))
        .route("/v1-rke2/client-ca.crt", get(client_ca))
        .route("/v1-rke2/server-ca.crt", get(server_ca))
        .route("/v1-rke2/client-kubelet.crt", get(client_kubelet).post(client_kubelet))
        .route("/v1-rke2/serving-kubelet.crt", get(serving_kubelet).post(serving_kubelet))
        .route("/v1-rke2/client-kube-proxy.crt", get(client_kube_proxy).post(client_kube_proxy))
        .route("/v1-rke2/client-rke2-controller.crt", get(client_controller).post(client_controller))
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "NotFound", "the stand-in does not serve this path") })
        .layer(middleware::from_fn_with_state(supervisor.clone(), authenticate));
    Router::new()
        .route("/ping", get(|| async { "pong" }))
        .route("/cacerts", get(cacerts))
        .merge(joined)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(supervisor)
}

/// Requires a correct password or a certificate of the client CA. A wrong password is refused even with a certificate.
async fn authenticate(State(supervisor): State<Arc<Supervisor>>, request: Request, next: Next) -> Response {
    let certified = request.extensions().get::<PeerCertificates>().is_some_and(|peer| !peer.0.is_empty());
    match basic(request.headers()) {
        Some((user, password)) => {
            let files = &supervisor.files;
            let right = match user.as_str() {
                "server" => token::same_secret(&password, &files.server_password),
                "node" => token::same_secret(&password, &files.node_password),
                _ => false,
            };
            if !right {
                return refuse(StatusCode::UNAUTHORIZED, "Unauthorized", "not authorized");
            }
        }
        None if certified => {}
        None => return refuse(StatusCode::FORBIDDEN, "Forbidden", "forbidden"),
    }
    next.run(request).await
}

fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let encoded = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let decoded = String::from_utf8(BASE64.decode(encoded.trim()).ok()?).ok()?;
    decoded.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}

async fn cacerts(State(supervisor): State<Arc<Supervisor>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain")], supervisor.files.server_ca.pem.clone()).into_response()
}

async fn client_ca(State(supervisor): State<Arc<Supervisor>>) -> String {
    supervisor.files.client_ca.pem.clone()
}

async fn server_ca(State(supervisor): State<Arc<Supervisor>>) -> String {
    supervisor.files.server_ca.pem.clone()
}

async fn readyz(State(supervisor): State<Arc<Supervisor>>) -> Response {
    if *supervisor.core_ready.borrow() { "ok".into_response() } else { not_ready() }
}

async fn config(State(supervisor): State<Arc<Supervisor>>) -> Json<serde_json::Value> {
    Json(supervisor.cluster.clone())
}

async fn apiservers(State(supervisor): State<Arc<Supervisor>>) -> Json<Vec<String>> {
    Json(vec![join_host_port(&supervisor.address, APISERVER_PORT)])
}

async fn client_kubelet(State(supervisor): State<Arc<Supervisor>>, headers: HeaderMap, body: Bytes) -> Response {
    issue_to_node(&supervisor, &headers, &body, |node, _| {
        (true, Subject::client(&format!("system:node:{node}"), Some("system:nodes")))
    })
    .await
}

async fn serving_kubelet(State(supervisor): State<Arc<Supervisor>>, headers: HeaderMap, body: Bytes) -> Response {
    issue_to_node(&supervisor, &headers, &body, |node, addresses| {
        let mut names = vec![node.to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned()];
        names.extend(addresses);
        (false, Subject::server(node, names))
    })
    .await
}

async fn client_kube_proxy(State(supervisor): State<Arc<Supervisor>>, body: Bytes) -> Response {
    issue(&supervisor, &body, true, &Subject::client("system:kube-proxy", None))
}

async fn client_controller(State(supervisor): State<Arc<Supervisor>>, body: Bytes) -> Response {
    issue(&supervisor, &body, true, &Subject::client("system:rke2-controller", None))
}

/// Issues a certificate to the node in the headers, after checking its password. `subject` returns whether the client CA signs it, and
/// its subject.
async fn issue_to_node(
    supervisor: &Supervisor,
    headers: &HeaderMap,
    csr: &[u8],
    subject: impl FnOnce(&str, Vec<String>) -> (bool, Subject),
) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (node, password) = (text("rke2-node-name"), text("rke2-node-password"));
    if !is_node_name(node) || password.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "BadRequest", "node name and node password must be set");
    }
    if !*supervisor.core_ready.borrow() {
        return not_ready();
    }
    match node_password::check(&supervisor.admin, node, password).await {
        Ok(Outcome::Accepted) => {}
        Ok(Outcome::Rejected) => {
            log::error!("unable to verify password for node {node}: hash does not match");
            return refuse(StatusCode::FORBIDDEN, "Forbidden", "unable to verify password for node");
        }
        Err(error) => {
            log::error!("unable to verify password for node {node}: {error:#}");
            return not_ready();
        }
    }
    let addresses = text("rke2-node-ip").split(',').filter(|a| a.parse::<std::net::IpAddr>().is_ok());
    let (client, subject) = subject(node, addresses.map(str::to_owned).collect());
    issue(supervisor, csr, client, &subject)
}

/// Returns the certificate for the DER request `csr`, or a certificate with a new key if `csr` is empty.
fn issue(supervisor: &Supervisor, csr: &[u8], client: bool, subject: &Subject) -> Response {
    let ca = if client { &supervisor.files.client_ca } else { &supervisor.files.server_ca };
    if csr.is_empty() {
        return match ca.issue(subject) {
            Ok(Leaf { certificate, key }) => format!("{certificate}{key}").into_response(),
            Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "certificate could not be issued"),
        };
    }
    match ca.sign_request(subject, csr) {
        Ok(certificate) => certificate.into_response(),
        Err(_) => refuse(StatusCode::BAD_REQUEST, "BadRequest", "unusable certificate request"),
    }
}

/// Whether `name` is safe in a certificate, a path and a Secret's name: RFC 1123 labels joined by dots.
fn is_node_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= NODE_NAME_LENGTH_MAX && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::is_node_name;

    #[test]
    fn node_name_cannot_inject_into_paths_or_certificates() {
        assert!(is_node_name("gpu-7.fra1"));
        for bad in ["", "a/b", "../x", "A", "a_b", "-a", "a-", "a..b", "a%2fb", "a,O=system:masters"] {
            assert!(!is_node_name(bad), "{bad}");
        }
    }
}
